// A desktop with the full sizes: a folder of 2,000 pictures, and an eject during an upload of 20 MB at 8 Mbit/s.
export const files = [
  'test/fs/thumbnails.mount.test.ts',
  'test/cli/eject.mount.test.ts',
  'test/programs/nautilus.mount.test.ts',
  'test/desktop/nautilus.mount.test.ts',
];
export const environment = (amount = '2000') => ({ CFS_PICTURES: amount, CFS_EJECT_MB: '20' });
