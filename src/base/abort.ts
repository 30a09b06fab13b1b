import { setMaxListeners } from 'node:events';

/**
 * A signal that aborts with the first of some, until it is released. `AbortSignal.any` is for sources that live no longer than what comes of
 * them: Node 20 keeps an entry for each with its source, also when it is long gone.
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
 * Waits for `work`, but no longer than `signal` lets it: the work itself goes on, for others or for nobody. How it ends then is
 * handled here in any case, also where the signal had aborted before: a rejection that nobody handles ends the process.
 *
 * @throws (rejects) what `work` rejects with · the signal's reason
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
