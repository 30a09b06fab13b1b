import { callControl, NoMountError } from './client.ts';
import type { EventRecord } from './event-model.ts';

/** Where a caller is this far behind, the connection is closed; what it lacks is read again from the history, which keeps more. */
const WAITING_MAX = 500;

export interface FollowOptions {
  /** First the events of the history after this number; null: all that are kept; absent: none. */
  readonly since?: number | null;
  /** Ends the iteration. */
  readonly signal?: AbortSignal;
}

/**
 * The events of a mount, each once and in order. Ends with the mount.
 *
 * @throws NoMountError if no mount answers at the beginning
 */
export async function* followEvents(
  socketPath: string,
  { since, signal }: FollowOptions = {},
): AsyncGenerator<EventRecord, void, void> {
  let after = since === undefined ? await newestOf(socketPath) : since;
  let hasAnswered = since === undefined;
  for (;;) {
    const part = openPart(socketPath, after, signal);
    try {
      for (let record = await part.next(); record !== null; record = await part.next()) {
        hasAnswered = true;
        after = record.seq;
        yield record;
      }
    } finally {
      part.close();
    }
    const error = await part.failure;
    if (part.isOverfull()) continue;
    if (signal?.aborted || error === null || (hasAnswered && error instanceof NoMountError)) return;
    throw error;
  }
}

async function newestOf(socketPath: string): Promise<number> {
  return (await callControl(socketPath, 'watch', { since: Number.MAX_SAFE_INTEGER, follow: false, status: false })).seq;
}

/** One `watch` call. */
function openPart(socketPath: string, since: number | null, signal: AbortSignal | undefined) {
  const waiting: EventRecord[] = [];
  const closing = new AbortController();
  let state: 'open' | 'overfull' | 'ended' = 'open';
  let wake = (): void => {};
  const failure = callControl(
    socketPath,
    'watch',
    { since, follow: true, status: false },
    {
      signal: signal === undefined ? closing.signal : AbortSignal.any([closing.signal, signal]),
      onProgress: (message) => {
        if (message.type !== 'event' || state !== 'open') return;
        waiting.push({ seq: message.seq, atMs: message.atMs, event: message.event });
        if (waiting.length >= WAITING_MAX) {
          state = 'overfull';
          closing.abort();
        }
        wake();
      },
    },
  )
    .then(
      () => null,
      (error: unknown) => error,
    )
    .finally(() => {
      if (state === 'open') state = 'ended';
      wake();
    });
  return {
    /** null: there are no more in this call. */
    async next(): Promise<EventRecord | null> {
      while (waiting.length === 0 && state === 'open') await new Promise<void>((resolve) => (wake = resolve));
      return waiting.shift() ?? null;
    },
    close: () => closing.abort(),
    isOverfull: () => state === 'overfull',
    /** The error with which the call ended, or null. */
    failure,
  };
}
