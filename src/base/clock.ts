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

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  elapsedMs: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const timer = setTimeout(() => {
        signal?.removeEventListener('abort', aborted);
        resolve();
      }, ms);
      timer.unref();
      const aborted = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      signal?.addEventListener('abort', aborted, { once: true });
    }),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
  random: () => Math.random(),
};
