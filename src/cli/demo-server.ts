import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../base/errors.ts';
import type { DemoServerAnswer, DemoServerQuestion } from './demo-server-messages.ts';
import { exitCode } from './exit-codes.ts';

const START_MS_MAX = 20_000;
const STOP_MS_MAX = 5_000;

/**
 * The embedded server of `npm start`, seen from the process that uses it. The child ends when the channel between the two
 * closes, so it outlives nobody, however this process ends.
 */
export class DemoServer {
  readonly origin: string;
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;

  private constructor(child: ChildProcess, ended: Promise<void>, origin: string) {
    this.#child = child;
    this.#ended = ended;
    this.origin = origin;
  }

  /** @throws UsageError (portTaken, store) in the server's own words */
  static async start(directory: string): Promise<DemoServer> {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const log = openSync(join(directory, 'server.log'), 'a', 0o600);
    const child = spawn(
      process.execPath,
      ['--enable-source-maps', fileURLToPath(new URL('./demo-server-process.js', import.meta.url)), directory],
      {
        // A session of its own: Ctrl-C ends the mount first, which still pushes to this server.
        detached: true,
        cwd: '/',
        stdio: ['ignore', log, log, 'ipc'],
      },
    );
    closeSync(log);
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    try {
      const answer = await answerOf(child, ended, 'listening');
      return new DemoServer(child, ended, answer.origin);
    } catch (error) {
      child.kill('SIGKILL');
      throw error;
    }
  }

  /** Makes the user, or gives it this password and new keys where it exists. */
  async prepareUser(
    email: string,
    password: string,
  ): Promise<{ application: string; accessKeyId: string; privateAccessKey: string }> {
    const answer = answerOf(this.#child, this.#ended, 'user');
    this.#child.send({ type: 'prepare-user', email, password } satisfies DemoServerQuestion);
    return await answer;
  }

  /** Ends the server in order. Its data stays. */
  async stop(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_MS_MAX);
    await this.#ended;
    clearTimeout(timer);
  }
}

async function answerOf<Type extends DemoServerAnswer['type']>(
  child: ChildProcess,
  ended: Promise<void>,
  type: Type,
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
      void ended.then(() =>
        reject(
          new UsageError('the embedded server ended at once: see server.log in its directory', exitCode('failure')),
        ),
      );
      timer = setTimeout(
        () => reject(new UsageError('the embedded server does not answer', exitCode('failure'))),
        START_MS_MAX,
      );
    });
  } finally {
    clearTimeout(timer);
    child.removeListener('message', listener);
  }
}
