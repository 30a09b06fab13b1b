// 32 threads of mixed calls and eight finds on the kernel binding: every answer is right, no call hangs, every handle is released.
export const files = ['test/kernel/linux-load.mount.test.ts', '-t', 'mixed calls'];
export const environment = (seconds = '60') => ({ CFS_TEST_MIXED_SECONDS: seconds });
