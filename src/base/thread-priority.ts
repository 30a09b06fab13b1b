import { getPriority, setPriority } from 'node:os';

/** Added nice(1) value of a low-priority thread: a third of the weight of a normal one. */
const PRIORITY_STEP = 5;
const NICE_MAX = 19;

/**
 * Lowers the calling thread's priority below that of all other threads and processes. Linux keeps a nice value per
 * thread, setpriority(2); threads and processes started later inherit it.
 */
export function lowerPriority(): void {
  try {
    setPriority(0, Math.min(NICE_MAX, getPriority(0) + PRIORITY_STEP));
  } catch {
    // Not supported here; only speed depends on it.
  }
}
