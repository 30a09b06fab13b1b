// The NFS server: records with random mutations, a walk of 10,000 folders by Spotlight, random operations while servers die, SIGKILL of the
// process of a mount under load, and a program of another user beside 50 starts and 50 kills. With the NFS client of a real kernel: conformance,
// random operations, SIGKILL and all programs.
export const project = ['unit', 'mount'];
export const files = [
  'test/nfs/mutated-records.test.ts',
  'test/nfs/intruder.test.ts',
  'test/nfs/restarts.test.ts',
  'test/nfs/spotlight.test.ts',
  'test/nfs/survival.test.ts',
  'test/nfs/kernel-client.mount.test.ts',
];
export const environment = (records = '1000000') => ({
  CFS_NFS_RECORDS: records,
  CFS_NFS_FOLDERS: '10000',
  CFS_NFS_OPERATIONS: '5000',
  CFS_NFS_KILLS: '20',
  CFS_NFS_STARTS: '50',
  CFS_RUNS: '20',
  CFS_NFS_WHOLE: '1',
});
