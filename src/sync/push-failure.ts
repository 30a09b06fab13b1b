import {
  ApiError,
  FsError,
  isOutOfDescriptors,
  isPassing,
  isReadOnlyDisk,
  ProtocolError,
  SignInError,
  StorageError,
  TransportError,
} from '../base/errors.ts';
import type { ParkReason } from '../store/tables.ts';

/** What a failed push means for its node and for the other pushes. */
export type PushFailure =
  /** No response: nothing is sent until a push succeeds again. */
  | { readonly type: 'offline'; readonly detail: string }
  /** The sign-in was rejected: nothing is sent until the user signs in again. */
  | { readonly type: 'sign-in'; readonly detail: string }
  /** Try again after a while. */
  | {
      readonly type: 'retry';
      readonly detail: string;
      readonly afterMs: number | null;
      /**
       * What the failure concerns: only `this` push, or the `service` as a whole, which requested a pause. An `error` of the service may be
       * either: if consecutive pushes get one, it concerns the service.
       */
      readonly trouble: 'this' | 'error' | 'service';
    }
  /** A retry cannot help. `isRefusal`: the cause is an HTTP response, from the service or from a proxy in front of it. */
  | { readonly type: 'park'; readonly reason: ParkReason; readonly detail: string; readonly isRefusal: boolean }
  /** We stopped it ourselves. */
  | { readonly type: 'stopped' };

/** A push failed for a reason that a retry does not remove. */
export class ParkedError extends Error {
  override readonly name = 'ParkedError';
  readonly reason: ParkReason;

  constructor(reason: ParkReason, message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

const REASON_OF_STATUS: ReadonlyMap<number, ParkReason> = new Map([
  [403, 'forbidden'],
  [404, 'not-found'],
  [409, 'conflict'],
  [413, 'quota'],
]);

export function pushFailureOf(error: unknown): PushFailure {
  const detail = error instanceof Error ? error.message : String(error);
  if (error instanceof ParkedError)
    return { type: 'park', reason: error.reason, detail, isRefusal: error.cause instanceof ApiError };
  if (error instanceof TransportError) return { type: 'offline', detail };
  if (error instanceof SignInError) return { type: 'sign-in', detail };
  if (error instanceof ApiError) {
    // A 401 after the transport has renewed the token once.
    if (error.status === 401) return { type: 'sign-in', detail };
    if (isPassing(error)) {
      const trouble = error.status === 429 || error.status === 503 ? 'service' : 'error';
      return { type: 'retry', detail, afterMs: error.retryAfterMs, trouble };
    }
    const reason = REASON_OF_STATUS.get(error.status) ?? 'refused';
    return { type: 'park', reason, detail, isRefusal: true };
  }
  if (error instanceof ProtocolError) return { type: 'park', reason: 'refused', detail, isRefusal: true };
  if (isOutOfDescriptors(error) || isReadOnlyDisk(error))
    return { type: 'retry', detail, afterMs: null, trouble: 'this' };
  if (error instanceof StorageError) {
    return error.full
      ? { type: 'retry', detail, afterMs: null, trouble: 'this' }
      : { type: 'park', reason: 'local-damage', detail, isRefusal: false };
  }
  if (error instanceof FsError) {
    // From completing a draft over its base (`complete`): the missing bytes do not exist any more, or the service is unreachable.
    if (error.errno === 'ESTALE') return { type: 'park', reason: 'base-lost', detail, isRefusal: true };
    if (error.errno === 'ETIMEDOUT') return { type: 'offline', detail };
    if (error.errno === 'EIO') return { type: 'park', reason: 'local-damage', detail, isRefusal: false };
    return { type: 'retry', detail, afterMs: null, trouble: 'this' };
  }
  if (error instanceof Error && error.name === 'AbortError') return { type: 'stopped' };
  if (error instanceof Error && error.name === 'TimeoutError') return { type: 'offline', detail };
  return { type: 'retry', detail, afterMs: null, trouble: 'this' };
}

/** The push has to wait for another change first. It is repeated after a pause. */
export class PostponedError extends Error {
  override readonly name = 'PostponedError';
}

/** Whether a failed request certainly changed nothing on the service. */
export function hadNoEffect(error: unknown): boolean {
  return (error instanceof ApiError || error instanceof TransportError) && !error.mayHaveActed;
}
