import { readFileSync } from 'node:fs';
import { constants } from 'node:os';

/**
 * The meaning of an INTERRUPT. The kernel sends it for *any* signal, once, and then waits even for a process that is being killed.
 *
 * killed  the thread ends once it has its reply (SIGKILL, or a fatal signal without a handler, which the kernel turns into it)
 * asked   a signal that may be a request to stop (Ctrl-C with a handler)
 * idle    only timers, children and the like: an EINTR would break programs that print their progress every second. Ctrl-Z too: a paused
 *         program is to be resumed, and a reply cannot make the kernel restart the call (fuse_dev_do_write takes no ERESTARTSYS)
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

/** The state that the pending signals of thread `pid` imply, from /proc/PID/status (proc(5)); about 20 µs: only after an INTERRUPT. */
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

/** As `callerState`, from the text of the file. */
export function stateOfStatus(status: string): CallerState {
  const mask = (field: string): bigint =>
    BigInt(`0x${new RegExp(`^${field}:\\s*([0-9a-f]+)$`, 'm').exec(status)?.[1] ?? '0'}`);
  const pending = mask('SigPnd') | mask('ShdPnd');
  if ((pending & bitOf(SIGKILL)) !== 0n) return 'killed';
  return (pending & ~mask('SigBlk') & ~NOT_A_WISH_TO_STOP) !== 0n ? 'asked' : 'idle';
}
