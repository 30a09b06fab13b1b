import {
  ApiError,
  FsError,
  ProtocolError,
  SignInError,
  StorageError,
  TransportError,
  UsageError,
} from '../base/errors.ts';
import { NoMountError } from '../control/client.ts';
import { exitCode } from './exit-codes.ts';

/** What a person is told when a command fails, and the code that scripts get. */
export interface Failure {
  /** One sentence (several lines only where several things are wrong), without the program's name and a full stop. */
  readonly sentence: string;
  readonly exitCode: number;
}

/** Every way a command can fail, as a sentence and a code. Only what is not listed is "unexpected": a defect of ours. */
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
    return { sentence: `the service cannot be reached: ${error.message}`, exitCode: exitCode('unreachable') };
  if (error instanceof ApiError)
    return { sentence: `the service refused it: ${error.message}`, exitCode: exitCode('unreachable') };
  if (error instanceof ProtocolError) {
    return {
      sentence: `the service gave an answer that it should not give: ${error.message}`,
      exitCode: exitCode('unreachable'),
    };
  }
  if (error instanceof StorageError) return { sentence: error.message, exitCode: exitCode('store') };
  if (error instanceof FsError) return { sentence: `${error.message} (${error.errno})`, exitCode: exitCode('failure') };
  const reason = error instanceof Error ? error.message : String(error);
  return { sentence: `unexpected failure: ${reason.split('\n', 1)[0]}`, exitCode: exitCode('failure') };
}

/**
 * Runs a command to its exit code. A failure is one sentence on standard error, never a stack: that one is printed for a
 * developer who sets CFS_LOG_LEVEL=debug.
 */
export async function runToExit(program: string, run: () => Promise<number>): Promise<void> {
  // A reader that went away (`cfs status | head -1`) is no failure of ours.
  process.stdout.on('error', () => {});
  // Pauses between attempts do not keep a process alive by themselves.
  const alive = setInterval(() => {}, 60_000);
  try {
    process.exitCode = await run();
  } catch (error) {
    const failure = failureOf(error);
    for (const line of failure.sentence.split('\n')) process.stderr.write(`${program}: ${line}\n`);
    if (process.env.CFS_LOG_LEVEL === 'debug' && error instanceof Error) process.stderr.write(`${error.stack}\n`);
    process.exitCode = failure.exitCode;
  } finally {
    clearInterval(alive);
  }
}
