import { setMaxListeners } from 'node:events';
import type { Clock } from '../base/clock.ts';
import { type Errno, FsError, SignInError, toFsError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { type ContentId, type Extent, type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { BlockReader } from '../content/block-reader.ts';
import { ifSound, isInDoubt, soundNode } from '../store/node-table.ts';
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
  /** What the last round met first, or was ended by; told until a round is complete, or somebody asks again. */
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
/** Files opened in one turn: of what is here nobody waits for the service. */
const FILES_PER_TURN = 20;
/** Changes come in rows. */
const SOON_MS = 300;
const FOLDERS_DEEP_MAX = 4096;
/** Away, no room, at its end: the next file would meet the same. */
const ENDS_A_ROUND: ReadonlySet<Errno> = new Set(['ETIMEDOUT', 'ENOSPC', 'EINTR']);

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
  /** Contents that were seen complete in this run, and were not evicted since: pinned ones never are. */
  readonly #whole = new Map<Inode, ContentId>();
  /** Who holds them: the service may have given a file another address than the one it was fetched from. */
  readonly #holders = new Map<ContentId, Inode>();
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
    deps.tree.onSuccession((former, heir) => this.#inherited(former, heir));
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
    for (const pin of this.#pins.values()) this.#askAgain(pin);
    this.#soon(0);
  }

  /** @throws UsageError for one too many: a folder takes all that is in it */
  pin(ino: Inode): void {
    const pin = this.#pins.get(ino);
    if (pin === undefined) {
      if (this.#pins.size >= PINS_MAX)
        throw new UsageError(`${PINS_MAX} are pinned already: pin the folder above them`);
      this.#keep([...this.#pins.keys(), ino]);
      this.#pins.set(ino, { state: unknownState(ino), isStale: true });
    } else this.#askAgain(pin);
    this.#soon(0);
  }

  /** @returns whether it was pinned, itself */
  unpin(ino: Inode): boolean {
    if (!this.#pins.has(ino)) return false;
    this.#keep([...this.#pins.keys()].filter((each) => each !== ino));
    this.#pins.delete(ino);
    if (this.#pins.size > 0) return true;
    this.#whole.clear();
    this.#holders.clear();
    return true;
  }

  stateOf(ino: Inode): PinState | undefined {
    return this.#isThere(ino) ? this.#pins.get(ino)?.state : undefined;
  }

  get states(): readonly PinState[] {
    return [...this.#pins.values()].map(({ state }) => state).filter(({ ino }) => this.#isThere(ino));
  }

  /** Whether a content is what a pinned file holds: never to be evicted. */
  keeps(content: ContentId): boolean {
    if (this.#pins.size === 0) return false;
    const { store } = this.#deps;
    const resource = store.get('content', content)?.resource;
    const ino = (resource == null ? undefined : store.get('resource', resource)) ?? this.#holders.get(content);
    if (ino === undefined) return false;
    if (soundNode(store, ino)?.local?.content === content && this.#pinOver(ino) !== undefined) return true;
    // It goes: whoever pins it again, or gives up what was written in its place, is not to hear that it is here.
    if (this.#whole.get(ino) === content) this.#whole.delete(ino);
    this.#holders.delete(content);
    return false;
  }

  /** What was removed is pinned until the next round, and has no place any more: it would be told as the root. What is damaged is there. */
  #isThere(ino: Inode): boolean {
    const read = ifSound(() => ({ node: this.#deps.store.get('node', ino) }));
    return read === undefined || read.node?.local != null;
  }

  #keep(inos: readonly Inode[]): void {
    this.#deps.store.transact((tx) => tx.put('meta', KEY, JSON.stringify(inos)));
  }

  /** An editor's save made another node of what is one file to its user, and to the service: it is that which was pinned. */
  #inherited(former: Inode, heir: Inode): void {
    if (!this.#pins.has(former) || this.#pins.has(heir)) return;
    try {
      this.#keep([...this.#pins.keys()].map((ino) => (ino === former ? heir : ino)));
    } catch (err) {
      this.#deps.log.warn({ ino: former, err }, 'a pin is not handed on');
      return;
    }
    this.#pins.delete(former);
    this.#pins.set(heir, { state: unknownState(heir), isStale: true });
    this.#soon(SOON_MS);
  }

  /** What the last round met says nothing about the next one. */
  #askAgain(pin: Pin): void {
    if (pin.state.isComplete) return;
    pin.state = { ...pin.state, trouble: null };
    pin.isStale = true;
  }

  #changed(ino: Inode): void {
    const pin = this.#pinOver(ino);
    if (pin === undefined) return;
    pin.isStale = true;
    this.#soon(SOON_MS);
  }

  /** Whether it is still there, and pinned. */
  #isMeant(ino: Inode): boolean {
    return soundNode(this.#deps.store, ino)?.local != null && this.#pinOver(ino) !== undefined;
  }

  /** The pin that a node lies in, or is. */
  #pinOver(ino: Inode): Pin | undefined {
    for (let at = ino, deep = 0; deep < FOLDERS_DEEP_MAX; deep++) {
      const pin = this.#pins.get(at);
      if (pin !== undefined || at === ROOT_INODE) return pin;
      const parent = soundNode(this.#deps.store, at)?.local?.parent;
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
    const { tree, log, shutdown } = this.#deps;
    const { ino } = pin.state;
    const troubles = new Troubles(shutdown, log);
    // Whatever ends a round is told as its trouble, also a damaged row: thrown from here it would end the mount.
    try {
      const root = tree.node(ino);
      if (root?.local == null) {
        this.unpin(ino);
        return;
      }
      const files = await this.#filesIn(root, troubles);
      if (troubles.isRoundOver) {
        pin.state = { ...pin.state, isComplete: false, trouble: troubles.told };
        return;
      }
      let bytes = 0;
      let filesHere = 0;
      let bytesHere = 0;
      const missing: Inode[] = [];
      const doubted: Inode[] = [];
      for (const [at, file] of files.entries()) {
        if (at % NAMES_PER_TURN === NAMES_PER_TURN - 1) await nextTurn();
        const node = troubles.unlessMet(file, () => tree.node(file));
        const local = node?.local;
        bytes += local?.sizeBytes ?? 0;
        if (local?.content != null && this.#whole.get(file) === local.content) {
          filesHere++;
          bytesHere += local.sizeBytes;
          if (node !== undefined && isInDoubt(node)) doubted.push(file);
        } else {
          missing.push(file);
          // Of what is here all the same, also where the round ends before it is looked at: nothing may go meanwhile.
          if (local?.content != null) this.#holders.set(local.content, file);
        }
      }
      const tell = (met: string | null): void => {
        const isComplete = troubles.told === null && filesHere === files.length;
        const trouble = isComplete ? null : (met ?? pin.state.trouble);
        pin.state = { ino, files: files.length, bytes, filesHere, bytesHere, isComplete, trouble };
      };
      const here = (step: number): void => {
        bytesHere += step;
        tell(null);
      };
      tell(null);
      let next = 0;
      const fetchSome = async (): Promise<void> => {
        while (!troubles.isRoundOver && this.#pins.has(ino)) {
          const file = missing[next++];
          if (file === undefined) return;
          if (next % FILES_PER_TURN === 0) await nextTurn();
          if (await troubles.unlessMetBy(file, this.#complete(file, here, troubles.signal))) filesHere++;
          // It counts here for as long as this round is the last one.
          else if (!this.#isMeant(file)) pin.isStale = true;
        }
      };
      // None of them rejects: a round that ended before all of its fetches would have those of the next one beside them.
      await Promise.all(Array.from({ length: FILES_AT_ONCE }, fetchSome));
      tell(null);
      // They are here; that they are the newest is to be asked.
      for (const file of doubted) {
        if (troubles.isRoundOver) break;
        await troubles.unlessMetBy(
          file,
          this.#complete(file, () => {}, troubles.signal),
        );
      }
      // Told at the end: until then it goes on, and whoever waits for it waits for the others.
      tell(troubles.told);
    } catch (error) {
      troubles.met(ino, error);
      pin.state = { ...pin.state, isComplete: false, trouble: troubles.told };
    }
  }

  /** All files in `root`, or itself; folders that were never listed are listed first, old ones behind our back. */
  async #filesIn(root: NodeRecord, troubles: Troubles): Promise<readonly Inode[]> {
    const { store, tree, freshness } = this.#deps;
    if (root.kind !== 'folder') return [root.ino];
    const files: Inode[] = [];
    const folders: Inode[] = [root.ino];
    const list = async (folder: Inode): Promise<void> => {
      if (!freshness.isListed(folder)) await freshness.ensureListed(folder, troubles.signal);
    };
    const walk = async (folder: Inode): Promise<void> => {
      for (let after: string | undefined, more = true; more; ) {
        more = false;
        let seen = 0;
        // Not `tree.children`: it ends at the first damaged node.
        for (const [name, ino] of store.scan('name', folder, after)) {
          const kind = troubles.unlessMet(ino, () => tree.node(ino))?.kind;
          if (kind !== undefined) (kind === 'folder' ? folders : files).push(ino);
          after = name;
          more = ++seen === NAMES_PER_TURN;
          if (more) break;
        }
        await nextTurn();
      }
    };
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      await troubles.unlessMetBy(folder, list(folder));
      if (troubles.isRoundOver) break;
      // What is known of it, where it could not be listed.
      await troubles.unlessMetBy(folder, walk(folder));
    }
    return files;
  }

  /** Fetches what is missing of the newest version, or under the draft, of a file. @returns whether it is still there to be fetched */
  async #complete(ino: Inode, here: (bytes: number) => void, signal: AbortSignal): Promise<boolean> {
    const { files, reader } = this.#deps;
    const file = files.acquire(ino, 'read');
    try {
      // Pins the version, as any reader does.
      await file.read({ start: 0, end: 1 }, { signal }, () => undefined);
      const { content, sizeBytes } = file;
      if (content === null) return true;
      for (const step of stepsOf(sizeBytes)) {
        if (!this.#isStarted) throw new FsError('EINTR', 'the mount is stopping');
        const stays = await reader.keep(content, step, signal);
        if (!stays) throw new FsError('ENOSPC', 'the disk has less free than --cache-reserve leaves alone');
        here(step.end - step.start);
        // Unpinned, or removed, which the service hears of when nobody has it open: no more of a long file is fetched.
        if (!this.#isMeant(ino)) return false;
      }
      this.#holders.delete(this.#whole.get(ino) ?? content);
      this.#whole.set(ino, content);
      this.#holders.set(content, ino);
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

/**
 * What a round met. The trouble of one file or folder is its own, and all others are fetched beside it; what the others would meet as well
 * ends the round, also what is under way of it.
 */
class Troubles {
  /** Ends what is under way. */
  readonly signal: AbortSignal;
  readonly #log: Logger;
  readonly #everybodys = new AbortController();
  #told: string | null = null;

  constructor(shutdown: AbortSignal, log: Logger) {
    this.signal = AbortSignal.any([shutdown, this.#everybodys.signal]);
    setMaxListeners(0, this.signal); // one for each request under way
    this.#log = log;
  }

  /** The first of them, or the one that ended the round; null: none was met. */
  get told(): string | null {
    return this.#told;
  }

  /** Nothing more of the round is to be begun. */
  get isRoundOver(): boolean {
    return this.signal.aborted;
  }

  met(ino: Inode, error: unknown): void {
    this.#log.debug({ err: error, ino }, 'pinned file or folder not complete');
    if (this.#everybodys.signal.aborted) return;
    const isEverybodys = error instanceof SignInError || ENDS_A_ROUND.has(toFsError(error).errno);
    const message = error instanceof Error ? error.message : String(error);
    this.#told = isEverybodys ? message : (this.#told ?? message);
    if (isEverybodys) this.#everybodys.abort(error);
  }

  unlessMet<T>(ino: Inode, read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      this.met(ino, error);
      return undefined;
    }
  }

  /** Never rejects. */
  async unlessMetBy<T>(ino: Inode, work: Promise<T>): Promise<T | undefined> {
    try {
      return await work;
    } catch (error) {
      this.met(ino, error);
      return undefined;
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
