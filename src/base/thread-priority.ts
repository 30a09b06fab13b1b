import { getPriority, setPriority } from 'node:os';

/** nice(1) of a thread that others go before: a third of the weight of an ordinary one. */
const STEP_BACK = 5;
const NICE_MAX = 19;

/**
 * Lets the other threads of this process, and of all others, go before the calling one where there are more threads than processors. Linux
 * keeps a nice value for each thread, setpriority(2). Threads and processes that it starts from now on inherit it.
 */
export function stepBack(): void {
  try {
    setPriority(0, Math.min(NICE_MAX, getPriority(0) + STEP_BACK));
  } catch {
    // Not here; nothing depends on it but speed.
  }
}
