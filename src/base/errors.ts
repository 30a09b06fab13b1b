import { constants } from 'node:os';

/**
 * Every way to fail, and the one table that turns a failure into the errno a process sees (`toFsError`).
 * Nothing outside this file picks an errno for a failure that it did not itself decide on.
 */

/** The errnos this project answers with. Numbers come from the system, so they are right on every platform. */
export type Errno = keyof typeof constants.errno;

/** A refusal or failure that we decided: carries the errno that the calling process gets. */
export class FsError extends Error {
  override readonly name = 'FsError';
  readonly errno: Errno;

  constructor(errno: Errno, message: string = errno, options?: ErrorOptions) {
    super(message, options);
    this.errno = errno;
  }

  /** The positive number of the errno on this system. */
  get code(): number {
    return constants.errno[this.errno];
  }
}

/** The service answered, and the answer is no. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly status: number;
  /** Method and path of the request, without secrets: `PUT /file/:sc:1:2/data`. */
  readonly request: string;
  /** From Retry-After, where the answer had one. */
  readonly retryAfterMs: number | null;

  constructor(
    status: number,
    request: string,
    message: string,
    options?: ErrorOptions & { retryAfterMs?: number | null },
  ) {
    super(message, options);
    this.status = status;
    this.request = request;
    this.retryAfterMs = options?.retryAfterMs ?? null;
  }
}

/** Whether the refusal passes by itself (docs/service.md 13.3: real 503s; rclone retries 429, 500, 502, 503, 504 and 509). */
export function isPassing({ status }: ApiError): boolean {
  return status >= 500 || status === 429 || status === 408;
}

/** No usable answer came: what the service did with the request is *unknown*. Ask before repeating what may not be doubled. */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly timedOut: boolean;
  /** True where the request certainly never reached the service (connection refused, name not found). */
  readonly neverSent: boolean;

  constructor(message: string, options?: ErrorOptions & { timedOut?: boolean; neverSent?: boolean }) {
    super(message, options);
    this.timedOut = options?.timedOut ?? false;
    this.neverSent = options?.neverSent ?? false;
  }
}

/** The refresh token (or the key pair) was refused: someone has to sign in again. Not cured by retrying. */
export class SignInError extends Error {
  override readonly name = 'SignInError';
}

/** An answer that the interface does not allow. Never retried: it would come again. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
}

/** The local store could not keep something. `full` where the disk is (lmdb says EIO for a full disk: the store tells them apart). */
export class StorageError extends Error {
  override readonly name = 'StorageError';
  readonly full: boolean;

  constructor(message: string, options?: ErrorOptions & { full?: boolean }) {
    super(message, options);
    this.full = options?.full ?? false;
  }
}

/** Whether this process, or the system, had no descriptor left: that passes, and says nothing about the file that was to be opened. */
export function isOutOfDescriptors(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) {
    const { code } = at as NodeJS.ErrnoException;
    if (code === 'EMFILE' || code === 'ENFILE') return true;
  }
  return false;
}

/** A mistake of whoever gave a command: printed as one sentence, no stack. `exitCode` from the one table in `cli/exit-codes`. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly exitCode: number;

  constructor(message: string, exitCode = 2, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

const ERRNO_OF_STATUS: ReadonlyMap<number, Errno> = new Map<number, Errno>([
  [401, 'EIO'], // after the one renewal of the token that the transport tries by itself; `cfs status` says *sign in again*
  [403, 'EACCES'],
  [416, 'EIO'],
  // Neither is 409 (a conflict) nor 413 (over the storage limit): they are answers to a change, and a change is pushed behind the
  // program's back (`sync/failure`). Whoever only reads or lists would be told "file exists" by `cat`: EIO.
  // 404 is not here: whether it means ENOENT (a name was asked for) or ESTALE (a version's bytes) is known to the caller
  // only, who throws FsError. 400 is not here either: the service calls our request malformed, so the bug is ours.
]);

/**
 * Turns whatever was thrown into the errno that a process will see.
 *
 * Anything unknown is EIO, never EPERM or ENOENT: a process that is told "not there" may go on and create the file, and one
 * told "not permitted" will not try again.
 */
export function toFsError(error: unknown): FsError {
  if (error instanceof FsError) return error;
  if (error instanceof ApiError)
    return new FsError(ERRNO_OF_STATUS.get(error.status) ?? 'EIO', error.message, { cause: error });
  // Offline and "no answer in time" look the same to a process: it may try again later.
  if (error instanceof TransportError) return new FsError('ETIMEDOUT', error.message, { cause: error });
  if (error instanceof SignInError) return new FsError('EIO', error.message, { cause: error });
  // Not EMFILE: it is not the limit of the process that is told.
  if (isOutOfDescriptors(error)) return new FsError('ENFILE', 'no descriptor is left', { cause: error });
  if (error instanceof StorageError) return new FsError(errnoOfStorage(error), error.message, { cause: error });
  if (error instanceof Error && error.name === 'TimeoutError')
    return new FsError('ETIMEDOUT', 'took longer than its deadline', { cause: error });
  if (error instanceof Error && error.name === 'AbortError')
    return new FsError('EINTR', 'interrupted by the caller', { cause: error });
  return new FsError('EIO', 'unexpected failure', { cause: error });
}

/** EFBIG: a place that no file on this disk has, 16 TiB on ext4. Writing there is the program's mistake, not the disk's. */
function errnoOfStorage({ full, cause }: StorageError): Errno {
  if (full) return 'ENOSPC';
  return (cause as NodeJS.ErrnoException | undefined)?.code === 'EFBIG' ? 'EFBIG' : 'EIO';
}

const NAME_OF_NUMBER: ReadonlyMap<number, string> = new Map(
  Object.entries(constants.errno).map(([name, number]) => [number, name]),
);

/**
 * The `code` of a failed system call. Node names only what libuv has a name for; of others, EDQUOT and ESTALE among them, the code is
 * *UNKNOWN* or *Unknown system error -122* (uv_err_name, src/uv-common.c), and the number says which it was.
 */
export function systemCodeOf(error: unknown): string | undefined {
  const { code, errno } = (error ?? {}) as NodeJS.ErrnoException;
  return typeof errno === 'number' && /^unknown/i.test(code ?? '') ? (errnoNameOf(-errno) ?? code) : code;
}

/** The name of an errno, undefined for a number that is none. */
export function errnoNameOf(number: number): Errno | undefined {
  return NAME_OF_NUMBER.get(number) as Errno | undefined;
}

/** An error as plain data, to cross the port between the two threads. */
export interface ErrorRecord {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  readonly fields: Readonly<Record<string, unknown>>;
}

export function errorToRecord(error: unknown): ErrorRecord {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error), stack: undefined, fields: {} };
  const fields: Record<string, unknown> = {};
  for (const key of [
    'errno',
    'status',
    'request',
    'retryAfterMs',
    'timedOut',
    'neverSent',
    'full',
    'exitCode',
  ] as const) {
    if (key in error) fields[key] = (error as unknown as Record<string, unknown>)[key];
  }
  return { name: error.name, message: error.message, stack: error.stack, fields };
}

/** The error of a record, as the class that was thrown on the other side. */
export function errorOfRecord(record: ErrorRecord): Error {
  const { fields, message } = record;
  const make = (): Error => {
    switch (record.name) {
      case 'FsError':
        return new FsError(fields.errno as Errno, message);
      case 'ApiError':
        return new ApiError(fields.status as number, fields.request as string, message, {
          retryAfterMs: fields.retryAfterMs as number | null,
        });
      case 'TransportError':
        return new TransportError(message, {
          timedOut: fields.timedOut as boolean,
          neverSent: fields.neverSent as boolean,
        });
      case 'SignInError':
        return new SignInError(message);
      case 'ProtocolError':
        return new ProtocolError(message);
      case 'StorageError':
        return new StorageError(message, { full: fields.full as boolean });
      case 'UsageError':
        return new UsageError(message, fields.exitCode as number);
      default: {
        const error = new Error(message);
        error.name = record.name;
        return error;
      }
    }
  };
  const error = make();
  if (record.stack !== undefined) error.stack = record.stack;
  return error;
}
