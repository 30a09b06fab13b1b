import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../base/errors.ts';
import { openLog } from '../base/log-file.ts';
import type { ConnectionStatus } from '../control/status-model.ts';
import { keeperProgram } from '../kernel/keeper.ts';
import { exitCode } from './exit-codes.ts';
import { type MountAnswer, type MountRequest, mountEnvironment, parseMountAnswer } from './mount-request.ts';

/** Variables of the service manager (sd_notify(3)): they are for the launcher and for no process that it starts. */
const MANAGER_VARIABLES = [
  ...['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID'],
  ...['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES'],
];
/** Secrets of `cfs login`, removed from the environment of the long-running mounting process. */
const SECRET_VARIABLES = ['CFS_PASSWORD', 'CFS_PRIVATE_ACCESS_KEY'];
/** The descriptor on which the mounting process answers. */
const READY_FD = 3;
/** Limit for a start, which replays the journal and may wait for a previous owner of the store. */
export const READY_MS_MAX = 60_000;

/** Descriptors of a running mount from the service manager: it outlived its keeper. */
export interface StoredMount {
  readonly device: number;
  readonly memory: number;
}

/** A process that has mounted. */
export interface LaunchedMount {
  readonly pid: number;
  /** Whether the service was reachable when the mount began. */
  readonly connection: ConnectionStatus;
  /** Exit code of the mounting process; 128 + number if a signal ended it. */
  readonly ended: Promise<number>;
  /** Passes a signal on. */
  signal(signal: NodeJS.Signals): void;
  /** Lets this process end while the mount keeps running. */
  release(): void;
}

/**
 * Node's flags for the mounting process (ADR 28):
 *
 * - A nursery of 1 MiB: the rest of a long listing is copied at each collection of V8's nursery, 12 ms in one turn of the loop with 16 MiB, 7 ms with
 *   1 MiB, for the same CPU time.
 * - One helper thread of V8 instead of four, which compete with the two threads of the mount for the processors.
 */
export const MOUNT_FLAGS: readonly string[] = ['--max-semi-space-size=1', '--v8-pool-size=1'];
const MOUNT_PROGRAM = fileURLToPath(new URL('./mounting-process.cjs', import.meta.url));
/** The command that starts the mounting process. Its environment has the request (`mount-request.ts`). */
export const MOUNTING_PROCESS = mountingProcess();

/** @param program another one, for tests */
export function mountingProcess(program = MOUNT_PROGRAM): readonly [string, ...string[]] {
  return [process.execPath, ...MOUNT_FLAGS, program];
}

/**
 * Starts the process that mounts and waits until the mount answers.
 *
 * It runs in a session of its own: Ctrl-C in a terminal reaches it once, through `signal`, and not a second time as a member
 * of the terminal's process group. UV_THREADPOOL_SIZE stands in its environment because setting it later has no effect.
 *
 * @param how `env`: its environment, this process's own; `program`: another than ours, for tests; `stored`: what it continues
 * @throws UsageError with the sentence and exit code that the process gave, or why it could not be started
 */
export async function launchMount(
  request: MountRequest,
  how: {
    readonly env?: Readonly<Record<string, string | undefined>>;
    readonly program?: string | undefined;
    readonly stored?: StoredMount | null;
  } = {},
): Promise<LaunchedMount> {
  const { env = process.env, program = MOUNT_PROGRAM, stored = null } = how;
  const { logFile } = request;
  if (logFile !== null) mkdirSync(dirname(logFile), { recursive: true, mode: 0o700 });
  // In the background the output goes to the log, so that a crash leaves a trace.
  const log = request.foreground || logFile === null ? null : openLog(logFile);
  const [command, ...words] = [...keeperOf(request), ...mountingProcess(program)] as [string];
  const child = spawn(command, words, {
    detached: true,
    cwd: '/',
    stdio: [
      ...(['ignore', log ?? 'inherit', log ?? 'inherit', 'pipe'] as const),
      ...(stored === null ? [] : [stored.device, stored.memory]),
    ],
    env: {
      ...env,
      // Only the process that the service manager started may notify it.
      ...Object.fromEntries([...MANAGER_VARIABLES, ...SECRET_VARIABLES].map((name) => [name, undefined])),
      UV_THREADPOOL_SIZE: env.UV_THREADPOOL_SIZE ?? '16',
      ...mountEnvironment(request, READY_FD),
      ...(request.options.continuity && (await keeperEnvironment(request, env, stored))),
    },
  });
  if (log !== null) closeSync(log);
  const ended = endOf(child);
  // The spawn failed: `ended` rejects with the reason and must be awaited. Without free descriptors there is no stdio.
  if (child.pid === undefined) await ended;
  const answers = child.stdio[READY_FD] as Readable;
  let connection: ConnectionStatus;
  try {
    ({ connection } = await readyOf(answers, ended, request, child));
  } finally {
    answers.destroy();
  }
  return {
    pid: child.pid ?? 0,
    connection,
    ended,
    signal: (signal) => {
      child.kill(signal);
    },
    release: () => child.unref(),
  };
}

/** For the keeper alone (native-deps/keeper). It stores the connection with the service manager, and its successor gets it by `stored`. */
async function keeperEnvironment(
  { directory, storeDirectory, layouts }: MountRequest,
  { NOTIFY_SOCKET }: Readonly<Record<string, string | undefined>>,
  stored: StoredMount | null,
): Promise<Record<string, string | undefined>> {
  const { createHash } = await import('node:crypto'); // a sixth of what the launcher loads
  const identity = JSON.stringify([directory, storeDirectory, layouts]);
  return {
    CFS_KEEPER_IDENTITY: createHash('sha256').update(identity).digest('hex'),
    CFS_KEEPER_MANAGER: NOTIFY_SOCKET,
    CFS_KEEPER_STORED: stored === null ? undefined : '1',
  };
}

/** The program that starts the mounting process and restarts it after its death. @throws UsageError if this copy has none */
function keeperOf({ options }: MountRequest): readonly string[] {
  if (!options.continuity) {
    if (options.standby === 'on') throw new UsageError('--standby=on works with --continuity only');
    return [];
  }
  if (options.binding !== 'linux') throw new UsageError('--continuity works with --binding linux only');
  const keeper = keeperProgram();
  if (keeper === null)
    throw new UsageError('this package has no keeper for --continuity: in a clone, run node scripts/build-native.mjs');
  return [keeper];
}

async function readyOf(
  answers: Readable,
  ended: Promise<number>,
  request: MountRequest,
  child: ChildProcess,
): Promise<Extract<MountAnswer, { ready: true }>> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      // A keeper kills the mounting process first.
      child.kill(request.options.continuity ? 'SIGTERM' : 'SIGKILL');
      reject(new UsageError(lateSentence(request), exitCode('failure')));
    }, READY_MS_MAX);
  });
  try {
    const answer = await Promise.race([firstAnswer(answers), late]);
    if (answer?.ready) return answer;
    if (answer !== null) throw new UsageError(answer.error, answer.exitCode);
    const code = await ended;
    throw new UsageError(
      `the mount process ended immediately (exit code ${code}); its log is ${logPlace(request)}`,
      code === 0 ? exitCode('failure') : code,
    );
  } finally {
    clearTimeout(timer);
  }
}

/** The message of a start that takes longer than `READY_MS_MAX`. */
export function lateSentence(request: MountRequest): string {
  return `the mount did not answer within ${READY_MS_MAX / 1000} s; its log is ${logPlace(request)}`;
}

function logPlace({ logFile }: MountRequest): string {
  return logFile ?? 'the journal (journalctl --user)';
}

/** @returns null when the process closed the descriptor without an answer. */
async function firstAnswer(answers: Readable) {
  for await (const line of createInterface({ input: answers })) {
    const answer = parseMountAnswer(line);
    if (answer !== null) return answer;
  }
  return null;
}

/** Rejects only where the process could not be started. @throws UsageError */
function endOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.once('error', (error) =>
      reject(new UsageError(`the mount process cannot be started: ${error.message}`, exitCode('failure'))),
    );
    child.once('exit', (code, signal) => resolve(code ?? 128 + signalNumber(signal)));
  });
}

function signalNumber(signal: NodeJS.Signals | null): number {
  const known: Partial<Record<NodeJS.Signals, number>> = {
    SIGHUP: 1,
    SIGINT: 2,
    SIGABRT: 6,
    SIGKILL: 9,
    SIGBUS: 7,
    SIGSEGV: 11,
    SIGTERM: 15,
  };
  return signal === null ? 0 : (known[signal] ?? 0);
}
