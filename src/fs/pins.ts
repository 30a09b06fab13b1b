import type { Clock } from '../base/clock.ts';
import { FsError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { type ContentId, type Extent, type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { BlockReader } from '../content/block-reader.ts';
import { isInDoubt } from '../store/node-table.ts';
import type { NodeRecord, StoreWriter } from '../store/tables.ts';
import type { Freshness } from '../tree/freshness.ts';
import type { Tree } from '../tree/tree.ts';
import type { OpenFiles } from './open-files.ts';

export interface PinsDeps {
  readonly store: StoreWriter;
  readonly tree: Tree;
  readonly freshness: Pick<Freshness, 'isListed' | 'ensureListed'>;
  readonly files: OpenFiles;
  readonly reader: BlockReader;
  readonly clock: Clock;
  readonly log: Logger;
  readonly shutdown: AbortSignal;
  /** How often pinned folders are looked at for what others changed, ms. */
  readonly roundMs: number;
}

/** How far a pinned file or folder is here, as of its last round. */
export interface PinState {
  readonly ino: Inode;
  readonly files: number;
  readonly bytes: number;
  readonly filesHere: number;
  readonly bytesHere: number;
  /** Everything that was there at the last round is here. */
  readonly isComplete: boolean;
  /** Why the last round ended before that; null when it did not. */
  readonly trouble: string | null;
}

/** In table `meta`: the inodes, as JSON. */
const KEY = 'pins';
const PINS_MAX = 1_000;
/** What is asked for at once of one file: progress is told in these steps. */
const STEP_BYTES = 8 * 1024 * 1024;
const FILES_AT_ONCE = 2;
/** Names looked at in one turn of the loop. */
const NAMES_PER_TURN = 200;
/** Changes come in rows. */
const SOON_MS = 300;
const FOLDERS_DEEP_MAX = 4096;

interface Pin {
  state: PinState;
  /** A round of it is to begin, although one may be under way. */
  isStale: boolean;
}

/**
 * What is kept complete on this machine, for times without a service: pinned files, and all that lies in pinned folders, whoever
 * made it. A round walks a pinned folder, lists what is old, and fetches what is missing, of the newest versions. It is made at the
 * start, when something changed, and now and then. What is pinned is known by inode: a rename changes nothing.
 */
export class Pins {
  readonly #deps: PinsDeps;
  readonly #pins = new Map<Inode, Pin>();
  /** Contents that were seen complete in this run; pinned ones are not evicted, so they stay so. */
  readonly #whole = new Map<Inode, ContentId>();
  #isRunning = false;
  #cancelRound: (() => void) | null = null;
  #isStarted = false;

  constructor(deps: PinsDeps) {
    this.#deps = deps;
    const kept = JSON.parse(String(deps.store.get('meta', KEY) ?? '[]')) as Inode[];
    for (const ino of kept) this.#pins.set(ino, { state: unknownState(ino), isStale: true });
    deps.tree.onRemoteChange((changes) => {
      if (this.#pins.size === 0) return;
      for (const change of changes) this.#changed(change.kind === 'inode' ? change.ino : change.parent);
    });
    deps.tree.onLocalChange((ino, what) => {
      if (this.#pins.size > 0 && what === 'moved') this.#changed(ino);
    });
  }

  /** From now on rounds are made. */
  start(): void {
    this.#isStarted = true;
    this.#soon(0);
  }

  stop(): void {
    this.#isStarted = false;
    this.#cancelRound?.();
  }

  /** The service answers again. */
  reachable(): void {
    for (const pin of this.#pins.values()) if (!pin.state.isComplete) pin.isStale = true;
    this.#soon(0);
  }

  /** @throws UsageError for one too many: a folder takes all that is in it */
  pin(ino: Inode): void {
    if (!this.#pins.has(ino)) {
      if (this.#pins.size >= PINS_MAX)
        throw new UsageError(`${PINS_MAX} are pinned already: pin the folder above them`);
      this.#keep([...this.#pins.keys(), ino]);
      this.#pins.set(ino, { state: unknownState(ino), isStale: true });
    }
    this.#soon(0);
  }

  /** @returns whether it was pinned, itself */
  unpin(ino: Inode): boolean {
    if (!this.#pins.has(ino)) return false;
    this.#keep([...this.#pins.keys()].filter((each) => each !== ino));
    this.#pins.delete(ino);
    if (this.#pins.size === 0) this.#whole.clear();
    return true;
  }

  stateOf(ino: Inode): PinState | undefined {
    return this.#pins.get(ino)?.state;
  }

  get states(): readonly PinState[] {
    return [...this.#pins.values()].map(({ state }) => state);
  }

  /** Whether a content is what a pinned file holds: never to be evicted. */
  keeps(content: ContentId): boolean {
    if (this.#pins.size === 0) return false;
    const { store } = this.#deps;
    const resource = store.get('content', content)?.resource;
    const ino = resource == null ? undefined : store.get('resource', resource);
    if (ino === undefined || store.get('node', ino)?.local?.content !== content) return false;
    return this.#pinOver(ino) !== undefined;
  }

  #keep(inos: readonly Inode[]): void {
    this.#deps.store.transact((tx) => tx.put('meta', KEY, JSON.stringify(inos)));
  }

  #changed(ino: Inode): void {
    const pin = this.#pinOver(ino);
    if (pin === undefined) return;
    pin.isStale = true;
    this.#soon(SOON_MS);
  }

  /** The pin that a node lies in, or is. */
  #pinOver(ino: Inode): Pin | undefined {
    for (let at = ino, deep = 0; deep < FOLDERS_DEEP_MAX; deep++) {
      const pin = this.#pins.get(at);
      if (pin !== undefined || at === ROOT_INODE) return pin;
      const parent = this.#deps.store.get('node', at)?.local?.parent;
      if (parent === undefined) return undefined;
      at = parent;
    }
    return undefined;
  }

  #soon(afterMs: number): void {
    if (!this.#isStarted || this.#pins.size === 0 || this.#isRunning) return;
    this.#cancelRound?.();
    this.#cancelRound = this.#deps.clock.after(afterMs, () => void this.#run());
  }

  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      for (const pin of this.#pins.values()) {
        if (!this.#isStarted) return;
        pin.isStale = false;
        await this.#round(pin);
      }
    } finally {
      this.#isRunning = false;
      const isStale = [...this.#pins.values()].some((pin) => pin.isStale);
      this.#soon(isStale ? SOON_MS : this.#deps.roundMs);
    }
  }

  async #round(pin: Pin): Promise<void> {
    const { tree, log } = this.#deps;
    const { ino } = pin.state;
    const root = tree.node(ino);
    if (root?.local == null) {
      this.unpin(ino);
      return;
    }
    const before = pin.state;
    try {
      const files = await this.#filesIn(root);
      let bytes = 0;
      let filesHere = 0;
      let bytesHere = 0;
      const missing: Inode[] = [];
      const doubted: Inode[] = [];
      for (const file of files) {
        const node = tree.node(file);
        const local = node?.local;
        bytes += local?.sizeBytes ?? 0;
        if (local?.content != null && this.#whole.get(file) === local.content) {
          filesHere++;
          bytesHere += local.sizeBytes;
          if (node !== undefined && isInDoubt(node)) doubted.push(file);
        } else missing.push(file);
      }
      const tell = (isComplete: boolean): void => {
        pin.state = { ino, files: files.length, bytes, filesHere, bytesHere, isComplete, trouble: null };
      };
      tell(missing.length === 0);
      let next = 0;
      const fetchSome = async (): Promise<void> => {
        for (let file = missing[next++]; file !== undefined && this.#pins.has(ino); file = missing[next++]) {
          const isHere = await this.#complete(file, (step) => {
            bytesHere += step;
            tell(false);
          });
          if (isHere) filesHere++;
        }
      };
      await Promise.all(Array.from({ length: FILES_AT_ONCE }, fetchSome));
      tell(filesHere === files.length);
      // They are here; that they are the newest is to be asked.
      for (const file of doubted) await this.#complete(file, () => {});
    } catch (error) {
      const trouble = error instanceof Error ? error.message : String(error);
      log.debug({ err: error, ino }, 'pinned files not complete');
      pin.state = { ...(pin.state === before ? before : pin.state), isComplete: false, trouble };
    }
  }

  /** All files in `root`, or itself; folders that were never listed are listed first, old ones behind our back. */
  async #filesIn(root: NodeRecord): Promise<readonly Inode[]> {
    const { tree, freshness, shutdown } = this.#deps;
    if (root.kind !== 'folder') return [root.ino];
    const files: Inode[] = [];
    const folders: Inode[] = [root.ino];
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      if (!freshness.isListed(folder)) await freshness.ensureListed(folder, shutdown);
      for (let after: string | undefined, more = true; more; ) {
        more = false;
        let seen = 0;
        for (const { name, node } of tree.children(folder, after)) {
          (node.kind === 'folder' ? folders : files).push(node.ino);
          after = name;
          more = ++seen === NAMES_PER_TURN;
          if (more) break;
        }
        await nextTurn();
      }
    }
    return files;
  }

  /** Fetches what is missing of the newest version, or under the draft, of a file. @returns whether it is still there to be fetched */
  async #complete(ino: Inode, here: (bytes: number) => void): Promise<boolean> {
    const { files, reader, shutdown } = this.#deps;
    const file = files.acquire(ino, 'read');
    try {
      // Pins the version, as any reader does.
      await file.read({ start: 0, end: 1 }, { signal: shutdown }, () => undefined);
      const { content, sizeBytes } = file;
      if (content === null) return true;
      for (const step of stepsOf(sizeBytes)) {
        if (!this.#isStarted) throw new FsError('EINTR', 'the mount is stopping');
        const stays = await reader.keep(content, step, shutdown);
        if (!stays) throw new FsError('ENOSPC', 'the disk has less free than --cache-reserve leaves alone');
        here(step.end - step.start);
      }
      this.#whole.set(ino, content);
      return true;
    } catch (error) {
      // Removed, or replaced, since the walk: the next round sees what there is.
      if (error instanceof FsError && (error.errno === 'ESTALE' || error.errno === 'ENOENT')) return false;
      throw error;
    } finally {
      files.release(file, 'read');
    }
  }
}

function* stepsOf(sizeBytes: number): Iterable<Extent> {
  for (let start = 0; start < sizeBytes; start += STEP_BYTES)
    yield { start, end: Math.min(start + STEP_BYTES, sizeBytes) };
}

function unknownState(ino: Inode): PinState {
  return { ino, files: 0, bytes: 0, filesHere: 0, bytesHere: 0, isComplete: false, trouble: null };
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
