import { setMaxListeners } from 'node:events';

/**
 * A signal that aborts with the first of several, until it is released. Use `AbortSignal.any` only for sources that do
 * not outlive the result: Node 20 keeps an entry per result in each source, even after the result is unreachable.
 */
export function firstOf(sources: readonly AbortSignal[]): {
  readonly signal: AbortSignal;
  readonly release: () => void;
} {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal); // as those of `AbortSignal.any` have
  const aborted = sources.find((source) => source.aborted);
  if (aborted !== undefined) {
    controller.abort(aborted.reason);
    return { signal: controller.signal, release: () => {} };
  }
  const abort = (event: Event): void => {
    release();
    controller.abort((event.target as AbortSignal).reason);
  };
  const release = (): void => {
    for (const source of sources) source.removeEventListener('abort', abort);
  };
  for (const source of sources) source.addEventListener('abort', abort, { once: true });
  return { signal: controller.signal, release };
}

/**
 * Waits for `work` until `signal` aborts; the work itself continues. A later rejection of `work` is always handled
 * here, even if the signal had aborted before: an unhandled rejection ends the process.
 *
 * @throws (rejects) the error of `work` · the signal's reason
 */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = () => reject(signal.reason);
    const ended = () => signal.removeEventListener('abort', aborted);
    work.then(resolve, reject).finally(ended);
    if (signal.aborted) aborted();
    else signal.addEventListener('abort', aborted, { once: true });
  });
}
