import { readFileSync } from 'node:fs';
import { constants } from 'node:os';

/**
 * What an INTERRUPT means. The kernel sends it for *any* signal, once, and then waits even for a process that is being killed.
 *
 * killed  the thread ends as soon as it has its answer (SIGKILL, or a signal that nobody handles: the kernel turns those into it)
 * asked   a signal that someone may have sent to stop what goes on (Ctrl-C with a handler)
 * idle    only timers, children and the like: an EINTR would break programs that just show their progress once a second. And Ctrl-Z: who
 *         pauses a program wants it to go on later, and we cannot let the kernel begin the call again (fuse_dev_do_write takes no ERESTARTSYS)
 */
export type CallerState = 'killed' | 'asked' | 'idle';

const { SIGALRM, SIGCHLD, SIGCONT, SIGIO, SIGKILL, SIGPROF, SIGURG, SIGVTALRM, SIGWINCH } = constants.signals;
const { SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU } = constants.signals;
const bitOf = (signal: number): bigint => 1n << BigInt(signal - 1);
const NOT_A_WISH_TO_STOP = [
  ...[SIGALRM, SIGCHLD, SIGCONT, SIGIO, SIGPROF, SIGURG, SIGVTALRM, SIGWINCH],
  ...[SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU],
]
  .map(bitOf)
  .reduce((mask, bit) => mask | bit, 0n);

/** What signals wait for the thread `pid`, from /proc/PID/status (proc(5)); about 20 µs, so only after an INTERRUPT. */
export function callerState(pid: number): CallerState {
  if (pid === 0) return 'killed'; // in another pid namespace: cannot be looked at, and must not be unkillable
  let status: string;
  try {
    status = readFileSync(`/proc/${pid}/status`, 'latin1');
  } catch {
    return 'killed'; // gone
  }
  return stateOfStatus(status);
}

/** The same from the text of the file. */
export function stateOfStatus(status: string): CallerState {
  const mask = (field: string): bigint =>
    BigInt(`0x${new RegExp(`^${field}:\\s*([0-9a-f]+)$`, 'm').exec(status)?.[1] ?? '0'}`);
  const pending = mask('SigPnd') | mask('ShdPnd');
  if ((pending & bitOf(SIGKILL)) !== 0n) return 'killed';
  return (pending & ~mask('SigBlk') & ~NOT_A_WISH_TO_STOP) !== 0n ? 'asked' : 'idle';
}
