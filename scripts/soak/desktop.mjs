// A desktop with the full sizes: a folder of 2,000 pictures, an eject during an upload of 20 MB at 8 Mbit/s, and 210 searches and folder
// changes in Nautilus over 2,000 files.
export const files = [
  'test/fs/thumbnails.mount.test.ts',
  'test/cli/eject.mount.test.ts',
  'test/programs/nautilus.mount.test.ts',
  'test/desktop/nautilus.mount.test.ts',
  'test/desktop/nautilus-window.mount.test.ts',
];
export const environment = (amount = '2000') => ({
  CFS_PICTURES: amount,
  CFS_EJECT_MB: '20',
  CFS_WINDOW_FILES: amount,
  CFS_WINDOW_ROUNDS: '70',
});
