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
