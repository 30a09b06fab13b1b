// Thirty-two threads of mixed calls and eight finds on the kernel binding: every answer right, nobody hangs, all is given back.
export const files = ['test/kernel/linux-load.mount.test.ts', '-t', 'mixed calls'];
export const environment = (seconds = '60') => ({ CFS_TEST_MIXED_SECONDS: seconds });
