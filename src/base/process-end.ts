import { loadAddon } from './native.ts';

/**
 * Ends this process with an exit code, like process.exit(), also while a thread of libuv's pool is held up: exit(3) waits for all of
 * them. getaddrinfo(3) takes half a minute where a resolver is silent, lstat(2) on a mount as long as the mount waits for its service.
 */
export function endProcess(code: number): never {
  if (isThreadHeld()) {
    try {
      loadAddon<{ exitNow(code: number): never }>().exitNow(code);
    } catch {
      // Without the addon it takes as long as it takes.
    }
  }
  process.exit(code);
}

/** Whether a name is being looked up or a file system is being asked: the process would not end by itself before that is done. */
export function isThreadHeld(): boolean {
  return process.getActiveResourcesInfo().some((name) => name === 'GetAddrInfoReqWrap' || name === 'FSReqPromise');
}
