/**
 * The only source of time and chance. Durations are measured with `elapsedMs`, which never jumps; moments that others see
 * (mtime, token expiry) come from `nowMs`, which may.
 */
export interface Clock {
  /** Milliseconds since the epoch, by the wall. */
  nowMs(): number;
  /** Milliseconds since some fixed moment, monotonic, with fractions. */
  elapsedMs(): number;
  /** Resolves after `ms`; rejects with the signal's reason when aborted first. Does not keep the process alive. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls back after `ms`; returns what cancels it. Does not keep the process alive. */
  after(ms: number, callback: () => void): () => void;
  /** A number in [0, 1), for jitter. */
  random(): number;
}

/** What a timer of Node can wait: one that is asked for more calls back at once (Node's documentation of `setTimeout`). */
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
