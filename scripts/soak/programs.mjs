// Ordinary programs with the full sizes: 10,000 files for cp, tar, rsync and zip, 500 commits for git, the packages of this project,
// sqlite3 killed 25 times for each journal, a film of 512 MiB and a picture of 300 MB.
export const files = [
  'test/programs/programs.mount.test.ts',
  'test/programs/sqlite-kill.mount.test.ts',
  'test/programs/big-copy.mount.test.ts',
  'test/programs/seeks.mount.test.ts',
  'test/programs/rclone-beside.mount.test.ts',
];
export const environment = (amount = '10000') => ({
  CFS_FILES: amount,
  CFS_COPY_FILES: amount,
  CFS_COPY_MIB: '300',
  CFS_COMMITS: '500',
  CFS_RUNS: '25',
  CFS_NPM_REGISTRY: '1',
  CFS_FILM_MIB: '512',
  CFS_PICTURE_SIDE: '10000',
});
