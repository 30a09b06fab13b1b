// A disk that is full at each step of the store that needs room, that one alone and all after it.
export const files = ['test/faults/full-disk.mount.test.ts'];
export const environment = (stride = '1') => ({ CFS_FULL_STRIDE: stride });
