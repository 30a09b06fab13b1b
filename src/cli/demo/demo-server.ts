import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../../base/errors.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import type { DemoServerAnswer, DemoServerQuestion } from './demo-server-messages.ts';

const PROGRAM = fileURLToPath(new URL('./demo-server-process.js', import.meta.url));
const START_MS_MAX = 20_000;
const STOP_MS_MAX = 5_000;

/**
 * The embedded server of `npm start`, seen from the process that uses it. The child ends when the channel between the two
 * closes, so it never outlives this process.
 */
export class DemoServer {
  readonly origin: string;
  readonly #child: ChildProcess;
  readonly #ended: Promise<UsageError>;

  private constructor(child: ChildProcess, ended: Promise<UsageError>, origin: string) {
    this.#child = child;
    this.#ended = ended;
    this.origin = origin;
  }

  /**
   * @param program for tests
   * @throws UsageError (portTaken, store) with the message of the server
   */
  static async start(directory: string, program: string = PROGRAM): Promise<DemoServer> {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const log = openSync(join(directory, 'server.log'), 'a', 0o600);
    const child = spawn(process.execPath, ['--enable-source-maps', program, directory], {
      // A session of its own: Ctrl-C ends the mount first, which still pushes to this server.
      detached: true,
      cwd: '/',
      stdio: ['ignore', log, log, 'ipc'],
    });
    closeSync(log);
    const ended = endOf(child);
    try {
      const answer = await answerOf(child, ended, 'listening');
      return new DemoServer(child, ended, answer.origin);
    } catch (error) {
      child.kill('SIGKILL');
      throw error;
    }
  }

  /** Creates the user, or sets this password and new keys for an existing one. */
  async prepareUser(
    email: string,
    password: string,
  ): Promise<{ application: string; accessKeyId: string; privateAccessKey: string }> {
    return await answerOf(this.#child, this.#ended, 'user', { type: 'prepare-user', email, password });
  }

  /** Ends the server in order. Its data stays. */
  async stop(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_MS_MAX);
    await this.#ended;
    clearTimeout(timer);
  }
}

/** Resolves when the process has ended or could not start, with the error for callers that wait for an answer. */
function endOf(child: ChildProcess): Promise<UsageError> {
  return new Promise((resolve) => {
    const end = (sentence: string): void => resolve(new UsageError(sentence, exitCode('failure')));
    child.once('exit', () => end('the embedded server ended immediately: see server.log in its directory'));
    child.on('error', (error) => end(`the embedded server cannot be started: ${error.message}`));
  });
}

async function answerOf<Type extends DemoServerAnswer['type']>(
  child: ChildProcess,
  ended: Promise<UsageError>,
  type: Type,
  question?: DemoServerQuestion,
): Promise<Extract<DemoServerAnswer, { type: Type }>> {
  let timer: NodeJS.Timeout | undefined;
  let listener: (message: unknown) => void = () => {};
  try {
    return await new Promise((resolve, reject) => {
      listener = (message) => {
        const answer = message as DemoServerAnswer;
        if (answer.type === type) resolve(answer as Extract<DemoServerAnswer, { type: Type }>);
        else if (answer.type === 'failed') reject(new UsageError(answer.sentence, answer.exitCode));
      };
      child.on('message', listener);
      void ended.then(reject);
      timer = setTimeout(
        () => reject(new UsageError('the embedded server does not answer', exitCode('failure'))),
        START_MS_MAX,
      );
      if (question === undefined) return;
      // Without a callback a closed channel emits 'error' on the child, which means a failed start.
      child.send(question, (error) => {
        if (error === null) return;
        reject(
          new UsageError(`a request to the embedded server could not be sent: ${error.message}`, exitCode('failure')),
        );
      });
    });
  } finally {
    clearTimeout(timer);
    child.removeListener('message', listener);
  }
}
