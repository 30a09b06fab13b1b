import { constants } from 'node:os';

/**
 * All error classes, and the one table that maps an error to the errno that a process sees (`toFsError`). Other files
 * choose an errno only for failures that they detect themselves.
 */

/** The errnos of this project. The numbers come from the system, so they are right on every platform. */
export type Errno = keyof typeof constants.errno;

/** A failure with a chosen errno, which the calling process gets. */
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

/** The service refused the request. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly status: number;
  /** Method and path of the request, without secrets: `PUT /file/:sc:1:2/data`. */
  readonly request: string;
  /** From Retry-After, if present. */
  readonly retryAfterMs: number | null;
  /**
   * Whether the service may have carried out the request: before this response (a gateway's 5xx or 408), or in an
   * earlier attempt whose response was lost.
   */
  mayHaveActed: boolean;

  constructor(
    status: number,
    request: string,
    message: string,
    options?: ErrorOptions & { retryAfterMs?: number | null; mayHaveActed?: boolean },
  ) {
    super(message, options);
    this.status = status;
    this.request = request;
    this.retryAfterMs = options?.retryAfterMs ?? null;
    this.mayHaveActed = options?.mayHaveActed ?? (status >= 500 || status === 408);
  }
}

/**
 * Whether the refusal is temporary (docs/service.md 13.3: real 503s; rclone retries 429, 500, 502, 503, 504 and 509).
 */
export function isPassing({ status }: ApiError): boolean {
  return status >= 500 || status === 429 || status === 408;
}

/**
 * No usable response: the outcome of the request is *unknown*. Check it before repeating a request that is not
 * idempotent.
 */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly timedOut: boolean;
  /** True if the last attempt certainly never reached the service (connection refused, name not found). */
  readonly neverSent: boolean;
  /** Whether the service may have carried out the request, in the last attempt or an earlier one. */
  mayHaveActed: boolean;

  constructor(
    message: string,
    options?: ErrorOptions & { timedOut?: boolean; neverSent?: boolean; mayHaveActed?: boolean },
  ) {
    super(message, options);
    this.timedOut = options?.timedOut ?? false;
    this.neverSent = options?.neverSent ?? false;
    this.mayHaveActed = options?.mayHaveActed ?? !this.neverSent;
  }
}

/** The refresh token (or the key pair) was refused: the user must sign in again. Retries do not help. */
export class SignInError extends Error {
  override readonly name = 'SignInError';
}

/** A response that the interface does not allow. Never retried: it would recur. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
}

/**
 * The local store could not save data. `full`: the disk is full (lmdb reports EIO for that; the store distinguishes
 * them).
 */
export class StorageError extends Error {
  override readonly name = 'StorageError';
  readonly full: boolean;

  constructor(message: string, options?: ErrorOptions & { full?: boolean }) {
    super(message, options);
    this.full = options?.full ?? false;
  }
}

/** Runs `act`, which writes the file at `path`. @throws StorageError in place of each of its errors, `full` for a full disk */
export async function asStorageError<T>(path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const code = systemCodeOf(error);
    const full = code === 'ENOSPC' || code === 'EDQUOT';
    throw new StorageError(`${path}: cannot be written`, { full, cause: error });
  }
}

/** Whether the process or the system was out of descriptors: temporary, and unrelated to the file being opened. */
export function isOutOfDescriptors(error: unknown): boolean {
  return isCausedBy(error, ['EMFILE', 'ENFILE']);
}

/** Whether the disk is read-only. Nothing on it is damaged, and it may be writable again. */
export function isReadOnlyDisk(error: unknown): boolean {
  return isCausedBy(error, ['EROFS']);
}

function isCausedBy(error: unknown, codes: readonly string[]): boolean {
  for (let at = error; at instanceof Error; at = at.cause)
    if (codes.includes((at as NodeJS.ErrnoException).code ?? '')) return true;
  return false;
}

/**
 * A mistake in a command: printed as one sentence, without a stack. `exitCode` is from the table in `cli/exit-codes`.
 */
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
  // 409 (conflict) and 413 (over the storage limit) are not here: they answer changes, which are pushed in the
  // background (`sync/push-failure`). A reader would get a misleading "file exists"; it gets EIO. 404 is not here: only the
  // caller, who throws FsError, knows whether it means ENOENT (a name) or ESTALE (a version's bytes). 400 is not here:
  // a malformed request is a bug of this program.
]);

/**
 * Converts any thrown value to the errno that a process sees.
 *
 * Unknown errors are EIO, never EPERM or ENOENT: after ENOENT a process may create the file, and after EPERM it does
 * not retry.
 */
export function toFsError(error: unknown): FsError {
  if (error instanceof FsError) return error;
  if (error instanceof ApiError)
    return new FsError(ERRNO_OF_STATUS.get(error.status) ?? 'EIO', error.message, { cause: error });
  // An outage and a timeout look the same to a process: it may retry later.
  if (error instanceof TransportError) return new FsError('ETIMEDOUT', error.message, { cause: error });
  if (error instanceof SignInError) return new FsError('EIO', error.message, { cause: error });
  // Not EMFILE: the caller's own limit is not exhausted.
  if (isOutOfDescriptors(error)) return new FsError('ENFILE', 'no descriptor is left', { cause: error });
  if (error instanceof StorageError) return new FsError(errnoOfStorage(error), error.message, { cause: error });
  if (error instanceof Error && error.name === 'TimeoutError')
    return new FsError('ETIMEDOUT', 'the deadline was exceeded', { cause: error });
  if (error instanceof Error && error.name === 'AbortError')
    return new FsError('EINTR', 'interrupted by the caller', { cause: error });
  return new FsError('EIO', 'unexpected failure', { cause: error });
}

/**
 * EFBIG: an offset beyond this file system's limit, 16 TiB on ext4. That is the program's mistake, not a disk fault.
 */
function errnoOfStorage({ full, cause }: StorageError): Errno {
  if (full) return 'ENOSPC';
  return (cause as NodeJS.ErrnoException | undefined)?.code === 'EFBIG' ? 'EFBIG' : 'EIO';
}

const NAME_OF_NUMBER: ReadonlyMap<number, string> = new Map(
  Object.entries(constants.errno).map(([name, number]) => [number, name]),
);

/**
 * The `code` of a failed system call. Node names only errnos known to libuv. For others, such as EDQUOT and ESTALE, the
 * code is *UNKNOWN* or *Unknown system error -122* (uv_err_name, src/uv-common.c), and the number decides.
 */
export function systemCodeOf(error: unknown): string | undefined {
  const { code, errno } = (error ?? {}) as NodeJS.ErrnoException;
  return typeof errno === 'number' && /^unknown/i.test(code ?? '') ? (errnoNameOf(-errno) ?? code) : code;
}

/** The name of an errno, undefined for an unknown number. */
export function errnoNameOf(number: number): Errno | undefined {
  return NAME_OF_NUMBER.get(number) as Errno | undefined;
}

/** An error as plain data, to cross the port between the two threads. */
export interface ErrorRecord {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly cause?: ErrorRecord | undefined;
}

const FIELDS = [
  'status',
  'request',
  'retryAfterMs',
  'timedOut',
  'neverSent',
  'mayHaveActed',
  'full',
  'exitCode',
  // of a failed system call, and of an FsError
  'errno',
  'code',
  'syscall',
  'path',
  'dest',
] as const;

export function errorToRecord(error: unknown): ErrorRecord {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error), stack: undefined, fields: {} };
  const { name, message, stack } = error;
  const fields: Record<string, unknown> = {};
  for (const key of FIELDS)
    if (Object.hasOwn(error, key)) fields[key] = (error as unknown as Record<string, unknown>)[key];
  return { name, message, stack, fields, cause: error.cause === undefined ? undefined : errorToRecord(error.cause) };
}

/** Restores an error of its original class from a record. */
export function errorOfRecord(record: ErrorRecord): Error {
  const { fields, message } = record;
  const options = record.cause === undefined ? {} : { cause: errorOfRecord(record.cause) };
  const make = (): Error => {
    switch (record.name) {
      case 'FsError':
        return new FsError(fields.errno as Errno, message, options);
      case 'ApiError':
        return new ApiError(fields.status as number, fields.request as string, message, {
          ...options,
          retryAfterMs: fields.retryAfterMs as number | null,
          mayHaveActed: fields.mayHaveActed as boolean,
        });
      case 'TransportError':
        return new TransportError(message, {
          ...options,
          timedOut: fields.timedOut as boolean,
          neverSent: fields.neverSent as boolean,
          mayHaveActed: fields.mayHaveActed as boolean,
        });
      case 'SignInError':
        return new SignInError(message, options);
      case 'ProtocolError':
        return new ProtocolError(message, options);
      case 'StorageError':
        return new StorageError(message, { ...options, full: fields.full as boolean });
      case 'UsageError':
        return new UsageError(message, fields.exitCode as number, options);
      default:
        return Object.assign(new Error(message, options), fields, { name: record.name });
    }
  };
  const error = make();
  if (record.stack !== undefined) error.stack = record.stack;
  return error;
}
