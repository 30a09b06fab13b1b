import { systemClock } from '../../src/base/clock.ts';
import {
  CallError,
  type Fd,
  type FileApi,
  O_APPEND,
  O_CREAT,
  O_EXCL,
  O_RDONLY,
  O_RDWR,
} from '../conformance/file-api.ts';
import type { SeededRandom } from '../store/seeded-random.ts';
import type { Ledger } from './ledger.ts';
import { isOfTheKilled, isToBeExpected, type Weather } from './weather.ts';

/** Few, so that clients meet; folders in folders, so that whole trees move and go. */
const FOLDERS = ['', 'd', 'e', 'd/e'];
const NAMES = ['a', 'b', 'c', 'Größe'];
/** Inline, a block and a bit, several blocks. */
const SIZES = [0, 30, 700, 17_000, 140_000, 300_000];
/** Pauses of somebody at work (ms): most steps follow at once, some when the last one was pushed. */
const PAUSES_MS = [0, 0, 0, 0, 30, 200, 500];

type Step =
  | 'save'
  | 'patch'
  | 'append'
  | 'replace'
  | 'create'
  | 'rename'
  | 'unlink'
  | 'mkdir'
  | 'rmdir'
  | 'read'
  | 'list';
const STEPS: readonly Step[] = [
  ...Array<Step>(4).fill('save'),
  ...Array<Step>(3).fill('patch'),
  ...Array<Step>(2).fill('append'),
  ...Array<Step>(3).fill('replace'),
  ...Array<Step>(3).fill('create'),
  ...Array<Step>(3).fill('rename'),
  ...Array<Step>(2).fill('unlink'),
  ...Array<Step>(2).fill('mkdir'),
  'rmdir',
  ...Array<Step>(3).fill('read'),
  'list',
];

/**
 * Somebody who works in a mount: random operations, one after the other, by system calls. What is read has to be something that
 * somebody wrote, whole; what is closed is entered in the ledger.
 */
export class MountedClient {
  readonly #name: string;
  readonly #api: () => FileApi;
  readonly #random: SeededRandom;
  readonly #ledger: Ledger;
  readonly #trace: string[];
  #count = 0;

  constructor(deps: { name: string; api: () => FileApi; random: SeededRandom; ledger: Ledger; trace: string[] }) {
    this.#name = deps.name;
    this.#api = deps.api;
    this.#random = deps.random;
    this.#ledger = deps.ledger;
    this.#trace = deps.trace;
  }

  /**
   * @param round `isKilled`: whether the mount will be killed meanwhile; `before`: the weather of the round before
   * @returns how many were taken; fewer than asked for when it was killed
   * @throws Error for an errno that nothing explains
   */
  async run(steps: number, round: { weather: Weather; before: Weather; isKilled: boolean }): Promise<number> {
    const { weather, before, isKilled } = round;
    for (let step = 0; step < steps; step++) {
      const what = this.#random.pick(STEPS);
      const path = this.#path();
      await systemClock.sleep(this.#random.pick(PAUSES_MS));
      try {
        const told = await this.#take(what, path);
        this.#note(`${what} ${path} ${told}`);
      } catch (error) {
        if (!(error instanceof CallError)) throw error;
        this.#note(`${what} ${path} → ${error.message}`);
        if (isKilled && isOfTheKilled(error.errno)) return step;
        if (!isToBeExpected(error.errno, weather, before)) {
          throw new Error(`${this.#name}, ${weather}: ${what} ${path}: ${error.message}`, { cause: error });
        }
      }
    }
    return steps;
  }

  async #take(step: Step, path: string): Promise<string> {
    const api = this.#api();
    switch (step) {
      case 'save':
        return this.#change(path, O_RDWR | O_CREAT, async (fd, before) => {
          const bytes = this.#content(this.#random.pick(SIZES));
          if (before.byteLength > 0) {
            this.#ledger.supersede(before, this.#name);
            await api.ftruncate(fd, 0);
          }
          return this.#write(fd, new Uint8Array(), 0, bytes);
        });
      case 'patch':
        return this.#change(path, O_RDWR, (fd, before) =>
          this.#write(fd, before, this.#random.below(before.byteLength + 1), this.#content(40)),
        );
      case 'append':
        return this.#change(path, O_RDWR | O_APPEND, (fd, before) =>
          this.#write(fd, before, before.byteLength, this.#content(40)),
        );
      case 'create':
        return this.#change(path, O_RDWR | O_CREAT | O_EXCL, (fd, before) =>
          this.#write(fd, before, 0, this.#content(this.#random.pick(SIZES))),
        );
      case 'replace': {
        const draft = `${path}.new${this.#count}`;
        let bytes: Uint8Array = new Uint8Array();
        await this.#change(draft, O_RDWR | O_CREAT | O_EXCL, (fd, before) => {
          bytes = this.#content(this.#random.pick(SIZES));
          return this.#write(fd, before, 0, bytes);
        });
        try {
          await this.#giveUp(path);
          await api.rename(draft, path);
        } catch (error) {
          if (!(error instanceof CallError) || isOfTheKilled(error.errno)) throw error;
          this.#ledger.supersede(bytes, this.#name);
          await api.unlink(draft).catch(() => {});
          throw error;
        }
        return '';
      }
      case 'rename': {
        const from = this.#anything(path);
        const to = this.#anything(this.#path());
        if (to === from) return 'to itself';
        await this.#giveUp(to);
        await api.rename(from, to);
        return `${from} → ${to}`;
      }
      case 'unlink': {
        const gone = this.#anything(path);
        await this.#giveUp(gone);
        await api.unlink(gone);
        return gone;
      }
      case 'mkdir':
        await api.mkdir(this.#folder());
        return '';
      case 'rmdir': {
        const folder = this.#folder();
        await api.rmdir(folder);
        return folder;
      }
      case 'read':
        return `${(await this.#readPath(path)).byteLength}`;
      case 'list': {
        const folder = this.#random.pick(FOLDERS);
        return `${folder}: ${(await api.readdir(folder)).map(({ name }) => name).join(' ')}`;
      }
      default:
        return step satisfies never;
    }
  }

  /** open, read all, change, read all, close: what the second reading saw is what `close` accepts. */
  async #change(path: string, flags: number, change: (fd: Fd, before: Uint8Array) => Promise<void>): Promise<string> {
    const api = this.#api();
    const fd = await api.open(path, flags, 0o644);
    try {
      const before = await this.#readAll(fd, path);
      await change(fd, before);
      if (this.#random.below(8) === 0) await api.fsync(fd);
      const after = await readWhole(api, fd);
      const digest = this.#ledger.announce(after, `${this.#name} ${this.#count} (${path}, ${after.byteLength} bytes)`);
      await api.close(fd);
      this.#ledger.accept(digest, this.#name);
      return `${before.byteLength} → ${after.byteLength} #${this.#count}`;
    } catch (error) {
      await api.close(fd).catch(() => {});
      throw error;
    }
  }

  async #write(fd: Fd, before: Uint8Array, offset: number, bytes: Uint8Array): Promise<void> {
    // Said first: from the first byte on it may be what is found after a kill.
    const after = Buffer.alloc(Math.max(before.byteLength, offset + bytes.byteLength));
    after.set(before);
    after.set(bytes, offset);
    this.#ledger.announce(after, `${this.#name} ${this.#count}`);
    this.#ledger.supersede(before, this.#name);
    if (bytes.byteLength > 0) await this.#api().write(fd, offset, bytes);
  }

  /** What is there now is replaced or removed by our own doing. */
  async #giveUp(path: string): Promise<void> {
    const bytes = await this.#readPath(path).catch((error: unknown) => {
      if (error instanceof CallError && (error.errno === 'ENOENT' || error.errno === 'EISDIR')) return null;
      throw error;
    });
    if (bytes !== null) this.#ledger.supersede(bytes, this.#name);
  }

  async #readPath(path: string): Promise<Uint8Array> {
    const api = this.#api();
    const fd = await api.open(path, O_RDONLY);
    try {
      return await this.#readAll(fd, path);
    } finally {
      await api.close(fd).catch(() => {});
    }
  }

  async #readAll(fd: Fd, path: string): Promise<Uint8Array> {
    const bytes = await readWhole(this.#api(), fd);
    this.#ledger.checkKnown(bytes, `${this.#name} reads ${path}`);
    return bytes;
  }

  #content(sizeBytes: number): Uint8Array {
    const mark = `${this.#name} ${++this.#count}|`;
    return Buffer.from(
      sizeBytes === 0
        ? mark
        : mark.repeat(Math.ceil(sizeBytes / mark.length)).slice(0, Math.max(sizeBytes, mark.length)),
    );
  }

  #path(): string {
    const folder = this.#random.pick(FOLDERS);
    const name = this.#random.pick(NAMES);
    return folder === '' ? name : `${folder}/${name}`;
  }

  /** Mostly that; else one of the folders, which somebody else may have made a file of. */
  #anything(path: string): string {
    return this.#random.below(4) === 0 ? this.#folder() : path;
  }

  #folder(): string {
    return this.#random.pick(FOLDERS.slice(1));
  }

  #note(text: string): void {
    this.#trace.push(`${new Date().toISOString().slice(14, 23)} ${this.#name}: ${text}`);
  }
}

async function readWhole(api: FileApi, fd: Fd): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  for (let offset = 0; ; ) {
    const piece = await api.read(fd, offset, 1 << 20);
    if (piece.byteLength === 0) return Buffer.concat(pieces);
    pieces.push(piece);
    offset += piece.byteLength;
  }
}
