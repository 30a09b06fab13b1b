import { loadAddon } from './native.ts';

/**
 * Ends this process with an exit code, like process.exit(), even while a libuv pool thread is blocked: exit(3) waits
 * for those threads. getaddrinfo(3) blocks for half a minute if a resolver is silent, lstat(2) on a mount until its
 * service responds.
 */
export function endProcess(code: number): never {
  if (isThreadHeld()) {
    try {
      loadAddon<{ exitNow(code: number): never }>().exitNow(code);
    } catch {
      // Without the addon, the exit waits for the threads.
    }
  }
  process.exit(code);
}

/** Whether a pending name lookup or file system call prevents a normal exit. */
export function isThreadHeld(): boolean {
  return process.getActiveResourcesInfo().some((name) => name === 'GetAddrInfoReqWrap' || name === 'FSReqPromise');
}
