import { loadAddon } from './native.ts';

/**
 * Ends this process with an exit code, like process.exit(), also while a name is being looked up: exit(3) waits for the threads of libuv's
 * pool, and one in getaddrinfo(3) comes back when it likes, after half a minute where a resolver is silent.
 */
export function endProcess(code: number): never {
  if (isLookingUp()) {
    try {
      loadAddon<{ exitNow(code: number): never }>().exitNow(code);
    } catch {
      // Without the addon it takes as long as it takes.
    }
  }
  process.exit(code);
}

/** Whether a name is being looked up: the process would not end by itself before that is done. */
export function isLookingUp(): boolean {
  return process.getActiveResourcesInfo().includes('GetAddrInfoReqWrap');
}
