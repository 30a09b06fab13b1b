import { setMaxListeners } from 'node:events';
import type { Clock } from '../base/clock.ts';
import { type Errno, FsError, SignInError, toFsError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { Extent, Inode } from '../base/vocabulary.ts';
import type { BlockReader } from '../content/block-reader.ts';
import { ifSound, isSuspect, soundNode } from '../store/node-table.ts';
import { PINS_MAX, writePinnedNodes } from '../store/pinned-nodes.ts';
import type { NodeRecord, StoreWriter } from '../store/tables.ts';
import type { Freshness } from '../tree/freshness.ts';
import type { NodeChanges } from '../tree/node-changes.ts';
import type { Tree } from '../tree/tree.ts';
import type { OpenFiles } from './open-files.ts';
import type { Pin, PinnedSet, PinState } from './pinned-set.ts';

export interface PinsDeps {
  readonly store: StoreWriter;
  readonly tree: Tree;
  readonly changes: NodeChanges;
  readonly pinned: PinnedSet;
  readonly freshness: Pick<Freshness, 'isListed' | 'ensureListed'>;
  readonly files: OpenFiles;
  readonly reader: BlockReader;
  readonly clock: Clock;
  readonly log: Logger;
  readonly shutdown: AbortSignal;
  /** How often pinned folders are checked for remote changes, ms. */
  readonly roundMs: number;
  /** A pin has become complete, or its fetch is stuck. */
  readonly onPin?: (state: PinState) => void;
}

/** The most that is fetched of a file in one step; progress is reported after each. */
const STEP_BYTES = 8 * 1024 * 1024;
const FILES_AT_ONCE = 2;
/** Names visited in one turn of the event loop. */
const NAMES_PER_TURN = 200;
/** Files opened in one turn: an open that needs no request does not yield. */
const FILES_PER_TURN = 20;
/** Changes come in bursts. */
const SOON_MS = 300;
/** Unreachable, disk full, shutdown: the next file would fail in the same way. */
const ENDS_A_ROUND: ReadonlySet<Errno> = new Set(['ETIMEDOUT', 'ENOSPC', 'EINTR']);

/**
 * Pins keep files complete on this machine for offline use: pinned files, and everything in pinned folders, of any origin. A round walks
 * a pinned folder, lists stale folders, and fetches missing blocks of the newest versions. Rounds run at the start, after a change, and
 * periodically. Pins are stored by inode: a rename does not affect them.
 */
export class Pins {
  readonly #deps: PinsDeps;
  readonly #pinned: PinnedSet;
  #isRunning = false;
  #cancelRound: (() => void) | null = null;
  #isStarted = false;

  constructor(deps: PinsDeps) {
    this.#deps = deps;
    this.#pinned = deps.pinned;
    deps.changes.on('remote', (changes) => {
      if (this.#pinned.size === 0) return;
      for (const change of changes) this.#changed(change.kind === 'inode' ? change.ino : change.parent);
    });
    deps.changes.on('ownershipTransferred', (from, to) => this.#transferred(from, to));
    deps.changes.on('pinned', (inos) => {
      for (const ino of inos) this.#pinned.add(ino);
      this.#soon(SOON_MS);
    });
    deps.changes.on('local', (ino, what) => {
      if (this.#pinned.size > 0 && what === 'moved') this.#changed(ino);
    });
  }

  /** Enables rounds. */
  start(): void {
    this.#isStarted = true;
    this.#soon(0);
  }

  stop(): void {
    this.#isStarted = false;
    this.#cancelRound?.();
  }

  /** The service is reachable again. */
  reachable(): void {
    for (const pin of this.#pinned.pins()) this.#askAgain(pin);
    this.#soon(0);
  }

  /**
   * @param how `once`: only until `endOnce`, and not over a restart
   * @throws UsageError above the limit: a pinned folder covers all of its files
   */
  pin(ino: Inode, how: 'always' | 'once' = 'always'): void {
    const pin = this.#pinned.get(ino);
    if (pin?.isOnce === true && how === 'always') {
      pin.isOnce = false;
      this.#keep(this.#pinned.inos());
    }
    if (pin === undefined) {
      if (this.#pinned.size >= PINS_MAX)
        throw new UsageError(`the limit of ${PINS_MAX} pins is reached: pin a parent folder instead`);
      if (how === 'always') this.#keep([...this.#pinned.inos(), ino]);
      this.#pinned.add(ino, how);
    } else this.#askAgain(pin);
    this.#soon(0);
  }

  /** @returns whether the node itself was pinned */
  unpin(ino: Inode): boolean {
    if (this.#pinned.get(ino) === undefined) return false;
    this.#keep(this.#pinned.inos().filter((each) => each !== ino));
    this.#pinned.remove(ino);
    return true;
  }

  /** Ends a pin that was made to fetch once. */
  endOnce(ino: Inode): void {
    if (this.#pinned.get(ino)?.isOnce === true) this.unpin(ino);
  }

  stateOf(ino: Inode): PinState | undefined {
    return this.#isThere(ino) ? this.#pinned.get(ino)?.state : undefined;
  }

  get states(): readonly PinState[] {
    return [...this.#pinned.pins()].map(({ state }) => state).filter(({ ino }) => this.#isThere(ino));
  }

  /** A removed node stays pinned until the next round, but has no path: it would be shown as the root. A damaged one still exists. */
  #isThere(ino: Inode): boolean {
    const read = ifSound(() => ({ node: this.#deps.store.get('node', ino) }));
    return read === undefined || read.node?.local != null;
  }

  #keep(inos: readonly Inode[]): void {
    const stored = inos.filter((ino) => this.#pinned.get(ino)?.isOnce !== true);
    this.#deps.store.transact((tx) => writePinnedNodes(tx, stored));
  }

  /** A save by replacement made another node of what the user and the service know as one file: the pin moves to it. */
  #transferred(from: Inode, to: Inode): void {
    if (this.#pinned.get(from)?.isOnce !== false || this.#pinned.get(to) !== undefined) return;
    try {
      this.#keep(this.#pinned.inos().map((ino) => (ino === from ? to : ino)));
    } catch (err) {
      this.#deps.log.warn({ ino: from, err }, 'pin not transferred to the replacing file');
      return;
    }
    this.#pinned.add(to);
    this.#pinned.remove(from);
    this.#soon(SOON_MS);
  }

  /** A new request clears the failure of the last round. */
  #askAgain(pin: Pin): void {
    if (pin.state.isComplete) return;
    pin.state = { ...pin.state, trouble: null };
    pin.isStale = true;
  }

  #changed(ino: Inode): void {
    const pin = this.#pinned.over(ino);
    if (pin === undefined) return;
    pin.isStale = true;
    this.#soon(SOON_MS);
  }

  /** Whether the node still exists and is pinned. */
  #isMeant(ino: Inode): boolean {
    return soundNode(this.#deps.store, ino)?.local != null && this.#pinned.over(ino) !== undefined;
  }

  #soon(afterMs: number): void {
    if (!this.#isStarted || this.#pinned.size === 0 || this.#isRunning) return;
    this.#cancelRound?.();
    this.#cancelRound = this.#deps.clock.after(afterMs, () => void this.#run());
  }

  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      for (const pin of this.#pinned.pins()) {
        if (!this.#isStarted) return;
        pin.isStale = false;
        await this.#round(pin);
      }
    } finally {
      this.#isRunning = false;
      const isStale = [...this.#pinned.pins()].some((pin) => pin.isStale);
      this.#soon(isStale ? SOON_MS : this.#deps.roundMs);
    }
  }

  async #round(pin: Pin): Promise<void> {
    const { tree, log, shutdown } = this.#deps;
    const { ino } = pin.state;
    const troubles = new Troubles(shutdown, log);
    const before = pin.state;
    // Every failure of a round becomes its trouble, a damaged record too: an exception from here would end the mount.
    try {
      const root = tree.node(ino);
      if (root?.local == null) {
        this.unpin(ino);
        return;
      }
      const files = await this.#filesIn(root, troubles);
      if (troubles.isRoundOver) {
        pin.state = { ...pin.state, isComplete: false, trouble: troubles.reported };
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
        if (local?.content != null && this.#pinned.isWhole(file, local.content)) {
          filesHere++;
          bytesHere += local.sizeBytes;
          if (node !== undefined && isSuspect(node)) doubted.push(file);
        } else {
          missing.push(file);
          // Protect the bytes on this machine before the file is visited: nothing may be evicted meanwhile.
          if (local?.content != null) this.#pinned.holds(file, local.content);
        }
      }
      const report = (met: string | null): void => {
        const isComplete = troubles.reported === null && filesHere === files.length;
        const trouble = isComplete ? null : (met ?? pin.state.trouble);
        pin.state = { ino, files: files.length, bytes, filesHere, bytesHere, isComplete, trouble };
      };
      const here = (step: number): void => {
        bytesHere += step;
        report(null);
      };
      report(null);
      let next = 0;
      const fetchSome = async (): Promise<void> => {
        while (!troubles.isRoundOver && this.#pinned.get(ino) !== undefined) {
          const file = missing[next++];
          if (file === undefined) return;
          if (next % FILES_PER_TURN === 0) await nextTurn();
          if (await troubles.unlessMetBy(file, this.#complete(file, here, troubles.signal))) filesHere++;
          // It is counted in this round's total: only another round corrects that.
          else if (!this.#isMeant(file)) pin.isStale = true;
        }
      };
      // None of them rejects: otherwise the round would end before its fetches, and those of the next one would run beside them.
      await Promise.all(Array.from({ length: FILES_AT_ONCE }, fetchSome));
      report(null);
      // Their bytes are complete; revalidate that these are the newest.
      for (const file of doubted) {
        if (troubles.isRoundOver) break;
        await troubles.unlessMetBy(
          file,
          this.#complete(file, () => {}, troubles.signal),
        );
      }
      // Report the trouble last: until then the round is in progress, and `cfs pin` waits for the other files.
      report(troubles.reported);
    } catch (error) {
      troubles.met(ino, error);
      pin.state = { ...pin.state, isComplete: false, trouble: troubles.reported };
    } finally {
      const { state } = pin;
      const isNews = state.isComplete !== before.isComplete || state.trouble !== before.trouble;
      if (isNews && this.#pinned.get(ino) === pin && this.#isThere(ino)) this.#deps.onPin?.(state);
    }
  }

  /** All files in `root`, or `root` itself. Folders that were never listed are listed first, stale ones in the background. */
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
      // Walk the known entries even if the listing failed.
      await troubles.unlessMetBy(folder, walk(folder));
    }
    return files;
  }

  /** Fetches the missing blocks of a file's newest version, or below its draft. @returns whether the file still exists and is pinned */
  async #complete(ino: Inode, here: (bytes: number) => void, signal: AbortSignal): Promise<boolean> {
    const { files, reader } = this.#deps;
    const file = files.acquire(ino, 'read');
    try {
      // Pins the version, as every reader does.
      await file.read({ start: 0, end: 1 }, { signal }, () => undefined);
      const { content, sizeBytes } = file;
      if (content === null) return true;
      for (const step of stepsOf(sizeBytes)) {
        if (!this.#isStarted) throw new FsError('EINTR', 'pinned files are not fetched now');
        const stays = await reader.keep(content, step, signal);
        if (!stays) throw new FsError('ENOSPC', 'free disk space is below --cache-reserve');
        here(step.end - step.start);
        // Unpinned, or removed: a deletion is pushed after the last close, so stop fetching a long file.
        if (!this.#isMeant(ino)) return false;
      }
      this.#pinned.completed(ino, content);
      return true;
    } catch (error) {
      // Removed or replaced since the walk: the next round sees the current state.
      if (error instanceof FsError && (error.errno === 'ESTALE' || error.errno === 'ENOENT')) return false;
      throw error;
    } finally {
      files.release(file, 'read');
    }
  }
}

/**
 * The failures of a round. A failure of one file or folder does not affect the others; one that every other would meet as well ends the
 * round and aborts its running fetches.
 */
class Troubles {
  /** Aborts the running fetches. */
  readonly signal: AbortSignal;
  readonly #log: Logger;
  readonly #common = new AbortController();
  #reported: string | null = null;

  constructor(shutdown: AbortSignal, log: Logger) {
    this.signal = AbortSignal.any([shutdown, this.#common.signal]);
    setMaxListeners(0, this.signal); // one for each request under way
    this.#log = log;
  }

  /** The first failure, or the one that ended the round; null without one. */
  get reported(): string | null {
    return this.#reported;
  }

  /** No further work of the round may begin. */
  get isRoundOver(): boolean {
    return this.signal.aborted;
  }

  met(ino: Inode, error: unknown): void {
    this.#log.debug({ err: error, ino }, 'pinned file or folder not complete');
    if (this.#common.signal.aborted) return;
    const isCommon = error instanceof SignInError || ENDS_A_ROUND.has(toFsError(error).errno);
    const message = error instanceof Error ? error.message : String(error);
    this.#reported = isCommon ? message : (this.#reported ?? message);
    if (isCommon) this.#common.abort(error);
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

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
