import { type ChildProcess, spawn } from 'node:child_process';

/** A failed call: the announcer ended. */
const ENDED = -1;

/** The fields of a call to the announcer, in their order. */
export type CallFields = readonly [
  operation: string,
  device: string,
  folder: string,
  inode: number,
  name: string,
  folder2: string,
  inode2: number,
  name2: string,
  time: string,
];

/**
 * The process of the announcer. The thread that answers the kernel starts it, and reaps it: until `onEnd`, no other process can have its id.
 * It makes one call at a time.
 */
export class Announcer {
  readonly #child: ChildProcess;
  #waiting: ((errno: number) => void) | null = null;
  #received: Buffer = Buffer.alloc(0);
  #isOver = false;

  /** @param onEnd synchronous with the reaping */
  constructor(program: string, onEnd: () => void) {
    const stdio: ['pipe', 'pipe', 'ignore'] = ['pipe', 'pipe', 'ignore'];
    this.#child = spawn(program, [String(process.pid)], { stdio, cwd: '/', env: {} });
    const over = (): void => {
      if (this.#isOver) return;
      this.#isOver = true;
      onEnd();
      this.#reply(ENDED);
    };
    this.#child.on('exit', over);
    this.#child.on('error', over);
    this.#child.stdin?.on('error', () => {}); // its exit says more
    this.#child.stdout?.on('data', (bytes: Buffer) => {
      this.#received = Buffer.concat([this.#received, bytes]);
      if (this.#received.length < 4) return;
      const errno = this.#received.readInt32LE(0);
      this.#received = this.#received.subarray(4);
      this.#reply(errno);
    });
    this.#child.unref();
  }

  /** null if the program could not be started. */
  get pid(): number | null {
    return this.#isOver ? null : (this.#child.pid ?? null);
  }

  /** @returns 0, its errno, or -1 if the announcer ended; the call may then have been made */
  perform(fields: CallFields): Promise<number> {
    if (this.#isOver) return Promise.resolve(ENDED);
    const texts = Buffer.from(fields.map((field) => `${field}\0`).join(''));
    const length = Buffer.alloc(4);
    length.writeUInt32LE(texts.length);
    return new Promise((resolve) => {
      this.#waiting = resolve;
      this.#child.stdin?.write(Buffer.concat([length, texts]));
    });
  }

  /** Ends the process after the call that it makes. */
  end(): void {
    this.#child.stdin?.end();
  }

  /** Ends the process before it can reach anything but this mount. */
  kill(): void {
    this.#child.kill('SIGKILL');
  }

  #reply(errno: number): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.(errno);
  }
}
