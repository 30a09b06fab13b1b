import { closeSync, mkdirSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import { openLog } from '../../base/log-file.ts';
import { duplicateDescriptor } from '../../base/native.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { lateSentence, READY_MS_MAX } from '../../mount/launch.ts';
import { connectionNote, visible } from '../../mount/mount-event.ts';
import { type PreparedMount, prepareMount } from '../../mount/mount-preparation.ts';
import { takeAnswerDescriptor } from '../../mount/mount-request.ts';
import { mountMain } from '../../mount/mounting-process.ts';
import { cfsMountProgram } from '../cfs-mount-program.ts';
import { warningsFor } from './mount-warnings.ts';

type Env = Record<string, string | undefined>;

/** The answer that lets `bin/cfs-mount` run the launcher. */
const LAUNCHER_NEEDED = 'launch';
const [STDOUT, STDERR] = [1, 2];

/**
 * A mount in the background that `bin/cfs-mount` started without a launcher: one start of Node less (ADR 23). The shell waits for lines
 * on the descriptor CFS_MOUNT_READY_FD:
 *
 * - `launch`: it shall run the launcher. That is the answer to all that is no right command line of a mount in the background, and to all that
 *   cannot be prepared. So only the launcher prints those errors.
 * - `log PATH`, and later `CODE PID TEXT`: the exit code, the process of the mount, and what to print. The text may have several lines.
 *
 * @throws UsageError without a shell that waits
 */
export async function mountForShell(env: Env, argv: readonly string[]): Promise<number> {
  const shell = takeAnswerDescriptor(env);
  if (shell === null) throw new UsageError('this program is started by cfs-mount: run cfs-mount DIR');
  const prepared = await preparedInBackground(env, argv);
  if (prepared === null || !logInBackground(prepared)) {
    say(shell, LAUNCHER_NEEDED);
    return exitCode('ok');
  }
  const { request, account } = prepared;
  say(shell, `log ${visible(request.logFile ?? '')}`);
  const answer = (code: number, text: string): void => {
    say(shell, `${code} ${process.pid} ${text}`);
    closeSync(shell);
  };
  const late = setTimeout(() => {
    answer(exitCode('failure'), `cfs-mount: ${visible(lateSentence(request))}`);
    process.kill(process.pid, 'SIGKILL');
  }, READY_MS_MAX);
  return await mountMain(env, request, (outcome) => {
    clearTimeout(late);
    if (outcome.ready) {
      const where = `${visible(account.username)} at ${visible(request.directory)}`;
      answer(exitCode('ok'), `mounted ${where}${connectionNote(outcome.connection)}`);
    } else {
      const lines = outcome.error.split('\n').map((line) => `cfs-mount: ${visible(line)}`);
      answer(outcome.exitCode, lines.join('\n'));
    }
  });
}

/** @returns null where the launcher is needed */
async function preparedInBackground(env: Env, argv: readonly string[]): Promise<PreparedMount | null> {
  let prepared: PreparedMount | null = null;
  const silent = { print: () => {}, warn: () => {} };
  const program = cfsMountProgram({ env, ...silent }, async (deps, { account, ...place }) => {
    const { continuity, standby } = deps.options;
    if (!place.foreground && !continuity && standby !== 'on') prepared = await prepareMount(deps, account, place);
  });
  program.configureOutput({ writeOut: silent.print, writeErr: silent.warn, outputError: silent.warn });
  try {
    await program.parseAsync([...argv]);
  } catch {
    return null;
  }
  return prepared;
}

/**
 * Moves the output of this process from the terminal to its log, so that a crash leaves a trace, after the warnings. From now on it uses no file
 * of its caller.
 *
 * @returns false if that is not possible
 */
function logInBackground({ request: { logFile } }: PreparedMount): boolean {
  if (logFile === null) return false;
  try {
    mkdirSync(dirname(logFile), { recursive: true, mode: 0o700 });
    const log = openLog(logFile);
    for (const sentence of warningsFor(process.env)) writeSync(STDERR, `cfs-mount: ${visible(sentence)}\n`);
    for (const output of [STDOUT, STDERR]) duplicateDescriptor(log, output);
    closeSync(log);
    process.chdir('/');
    return true;
  } catch {
    return false;
  }
}

/** Does nothing if the shell has ended meanwhile (EPIPE): the mount continues without it. */
function say(shell: number, text: string): void {
  try {
    writeSync(shell, `${text}\n`);
  } catch {
    // The shell was killed while it waited.
  }
}
