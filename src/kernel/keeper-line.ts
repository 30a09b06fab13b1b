import { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { UsageError } from '../base/errors.ts';
import { KEEPER_LINE, type Keeper, MESSAGES, placeIn, tellKeeper } from './keeper.ts';

/** How the preparation of a standby ended. */
type Outcome = 'waits' | 'failed';

/**
 * The main thread's line to the keeper. It is a duplicate of the socket of `tellKeeper`, so that closing it after the keeper's death leaves no
 * descriptor to another file under that number.
 */
export class KeeperLine {
  readonly #socket: Socket;
  /** For the outcome of the preparation that is under way; null: none is. */
  #answered: ((outcome: Outcome) => void) | null = null;
  /** A keeper may end before its standby has loaded the program and waits. */
  readonly #turn: Promise<Keeper | null>;
  /** Called when a standby that waited has ended. */
  onLost: () => void = () => {};
  /** The preparations, one after the other: each ends the standby of the one before. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(socket = new Socket({ fd: KEEPER_LINE, readable: true, writable: true })) {
    this.#socket = socket;
    const lines = createInterface({ input: socket });
    this.#turn = new Promise((resolve) => {
      lines.on('line', (line) => {
        if (this.#answered !== null && (line === 'waits' || line === 'failed')) this.#answered(line);
        else if (line === 'failed') this.onLost();
        else resolve(placeIn(line));
      });
      lines.on('close', () => resolve(null));
    });
    socket.on('error', () => {}); // `close` follows
    socket.unref();
  }

  /** For a standby that is ready: waits until it continues the mount. @returns null when the keeper ends */
  async turn(): Promise<Keeper | null> {
    this.#socket.ref();
    tellKeeper('waits');
    const keeper = await this.#turn;
    this.#socket.unref();
    return keeper;
  }

  /**
   * Starts a process that waits to continue this mount, in place of the one that waits now.
   *
   * @param command of a process of another version; null: of another process of this one
   * @param timeoutMs until it must have loaded its program
   * @throws UsageError if it ended, or did not wait in time
   */
  async prepare(command: readonly string[] | null, timeoutMs: number): Promise<void> {
    const prepared = this.#last.then(() => this.#prepare(command, timeoutMs));
    this.#last = prepared.catch(() => {});
    await prepared;
  }

  async #prepare(command: readonly string[] | null, timeoutMs: number): Promise<void> {
    const words = Buffer.from((command ?? []).map((word) => `${word}\0`).join(''));
    const length = Buffer.from(Uint32Array.of(words.length).buffer);
    let timer: NodeJS.Timeout | undefined;
    const outcome = await new Promise<Outcome | 'late'>((resolve) => {
      this.#answered = resolve;
      timer = setTimeout(resolve, timeoutMs, 'late');
      this.#socket.write(Buffer.concat([Buffer.from(MESSAGES.prepare), length, words]));
    });
    clearTimeout(timer);
    this.#answered = null;
    if (outcome === 'failed') throw new UsageError('its process ended immediately');
    if (outcome === 'late') throw new UsageError(`its process was not ready within ${timeoutMs / 1000} s`);
  }
}
