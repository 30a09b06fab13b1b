/**
 * The only source of time and randomness. Durations use `elapsedMs`, which never jumps; times visible to others (mtime,
 * token expiry) use `nowMs`, which may.
 */
export interface Clock {
  /** Milliseconds since the epoch, by the wall clock. */
  nowMs(): number;
  /** Monotonic milliseconds since an arbitrary start, with fractions. */
  elapsedMs(): number;
  /** Resolves after `ms`; rejects with the signal's reason if it aborts first. Does not keep the process alive. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls back after `ms`; returns a function that cancels it. Does not keep the process alive. */
  after(ms: number, callback: () => void): () => void;
  /** A number in [0, 1), for jitter. */
  random(): number;
}

/** Longest delay of a Node timer: longer ones fire immediately (Node's documentation of `setTimeout`). */
const TIMER_MS_MAX = 2 ** 31 - 1;

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  elapsedMs: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const cancel = after(ms, () => {
        signal?.removeEventListener('abort', aborted);
        resolve();
      });
      const aborted = () => {
        cancel();
        reject(signal?.reason);
      };
      signal?.addEventListener('abort', aborted, { once: true });
    }),
  after,
  random: () => Math.random(),
};

function after(ms: number, callback: () => void): () => void {
  let timer: NodeJS.Timeout;
  const wait = (leftMs: number): void => {
    const next = leftMs > TIMER_MS_MAX ? () => wait(leftMs - TIMER_MS_MAX) : callback;
    timer = setTimeout(next, Math.min(leftMs, TIMER_MS_MAX));
    timer.unref();
  };
  wait(ms);
  return () => clearTimeout(timer);
}
