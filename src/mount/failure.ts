import {
  ApiError,
  FsError,
  ProtocolError,
  SignInError,
  StorageError,
  systemCodeOf,
  TransportError,
  UsageError,
} from '../base/errors.ts';
import { endProcess, isThreadHeld } from '../base/process-end.ts';
import { NoMountError } from '../control/client.ts';
import { type ExitReason, exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';

/** The message of a failed command, and its exit code. */
export interface Failure {
  /** One sentence (several lines only where several things are wrong), without the program's name and a full stop. */
  readonly sentence: string;
  readonly exitCode: number;
}

/** Maps every failure of a command to a sentence and a code. Anything else is an "unexpected failure": a defect. */
export function failureOf(error: unknown): Failure {
  if (error instanceof UsageError) return { sentence: error.message, exitCode: error.exitCode };
  if (error instanceof NoMountError) {
    if (error.code === 'EACCES')
      return { sentence: 'that mount belongs to another user', exitCode: exitCode('notMounted') };
    if (error.code === 'EPIPE')
      return { sentence: 'the mount ended before it answered', exitCode: exitCode('notMounted') };
    return { sentence: 'no mount is running', exitCode: exitCode('notMounted') };
  }
  if (error instanceof SignInError)
    return { sentence: `${error.message}: run cfs login URL`, exitCode: exitCode('signIn') };
  if (error instanceof TransportError)
    return { sentence: `the service cannot be reached: ${transportReason(error)}`, exitCode: exitCode('unreachable') };
  if (error instanceof ApiError)
    return { sentence: `the service refused the request: ${error.message}`, exitCode: exitCode('unreachable') };
  if (error instanceof ProtocolError) {
    return {
      sentence: `the service sent an invalid response: ${error.message}`,
      exitCode: exitCode('unreachable'),
    };
  }
  if (error instanceof StorageError) return { sentence: error.message, exitCode: exitCode('store') };
  if (error instanceof FsError) return { sentence: `${error.message} (${error.errno})`, exitCode: exitCode('failure') };
  // Only requests to the service use a bare `AbortSignal.timeout`; a silent mount has its own error.
  if (error instanceof Error && error.name === 'TimeoutError')
    return { sentence: 'the service did not answer in time', exitCode: exitCode('unreachable') };
  const failed = diskFailure(error);
  if (failed !== null) return failed;
  const reason = error instanceof Error ? error.message : String(error);
  return { sentence: `unexpected failure: ${reason.split('\n', 1)[0]}`, exitCode: exitCode('failure') };
}

/**
 * The reason of a transport failure, as one line. OpenSSL reports `80…:error:0A00010B:SSL routines:FUNCTION:REASON:FILE:LINE`, with
 * a line feed. To OpenSSL, the answer of a plain HTTP server is a wrong version.
 */
export function transportReason({ message }: TransportError): string {
  const [, reason] = /[0-9A-F]+:error:[0-9A-F]+:[^:]*:[^:]*:([^:]*):/.exec(message) ?? [];
  if (reason === undefined) return message;
  const isPlain = ['wrong version number', 'packet length too long', 'http request'].includes(reason);
  return isPlain
    ? `the server does not speak TLS (${reason}): check the scheme (http:// or https://) and the port`
    : `no trusted connection: ${reason}`;
}

/** The failure of a system call on a file or folder; null for any other error. */
function diskFailure(error: unknown): Failure | null {
  const { path, dest, syscall } = error as NodeJS.ErrnoException & { readonly dest?: string };
  const code = systemCodeOf(error);
  const known = code === undefined ? undefined : DISK_FAILURES.get(code);
  if (known === undefined || syscall === undefined) return null;
  const place = dest ?? path;
  return {
    sentence: `${place === undefined ? '' : `${visible(place)}: `}${known.sentence} (${code})`,
    exitCode: exitCode(known.reason),
  };
}

/** Adds the path to a failed call on a descriptor, for the message. */
export function withPath(error: unknown, path: string): unknown {
  return error instanceof Error && 'syscall' in error ? Object.assign(error, { path }) : error;
}

const DISK_FAILURES: ReadonlyMap<string, { readonly sentence: string; readonly reason: ExitReason }> = new Map([
  ['ENOSPC', { sentence: 'no space is left on the disk', reason: 'store' }],
  ['EDQUOT', { sentence: 'the quota is used up', reason: 'store' }],
  ['EACCES', { sentence: 'this user has no permission to read or write it', reason: 'usage' }],
  ['EPERM', { sentence: 'this user has no permission to change it', reason: 'usage' }],
  ['EROFS', { sentence: 'its file system is mounted read-only', reason: 'usage' }],
  ['ENOENT', { sentence: 'it does not exist', reason: 'missing' }],
  ['ENOTDIR', { sentence: 'a part of its path is not a folder', reason: 'missing' }],
  ['EEXIST', { sentence: 'it already exists', reason: 'usage' }],
  ['EISDIR', { sentence: 'it is a folder', reason: 'usage' }],
  ['ENAMETOOLONG', { sentence: 'the name is too long', reason: 'usage' }],
  ['ETIMEDOUT', { sentence: 'the service cannot be reached', reason: 'unreachable' }],
  ['EIO', { sentence: 'it cannot be read: see cfs status', reason: 'unreachable' }],
  ['ENOTCONN', { sentence: 'its mount is dead: cfs umount removes it', reason: 'notMounted' }],
]);

/**
 * Runs a command to its exit code. A failure is one sentence on standard error, never a stack: that one is printed for a
 * developer who sets CFS_LOG_LEVEL=debug.
 */
export async function runToExit(program: string, run: () => Promise<number>): Promise<void> {
  // A closed pipe (`cfs status | head -1`, `cfs sync --wait 2>&1 | head -1`) is not a failure of the command.
  for (const output of [process.stdout, process.stderr]) output.on('error', () => {});
  // Pauses between attempts do not keep a process alive by themselves.
  const alive = setInterval(() => {}, 60_000);
  let code: number;
  try {
    code = await run();
  } catch (error) {
    const failure = failureOf(error);
    for (const line of failure.sentence.split('\n')) process.stderr.write(`${program}: ${visible(line)}\n`);
    if (process.env.CFS_LOG_LEVEL === 'debug' && error instanceof Error) process.stderr.write(`${error.stack}\n`);
    code = failure.exitCode;
  } finally {
    clearInterval(alive);
  }
  process.exitCode = code;
  if (isThreadHeld()) endProcess(code);
}
