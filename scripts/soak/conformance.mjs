// The conformance suite over ext4 and over a mount, with 100,000 entries in a folder.
export const files = ['test/conformance/plain-directory.mount.test.ts', 'test/conformance/real-mount.mount.test.ts'];
export const environment = (entries = '100000') => ({ CFS_CONFORMANCE_ENTRIES: entries, CFS_TEST_MS_MAX: '1800000' });
