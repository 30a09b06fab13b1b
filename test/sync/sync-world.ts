import { ApiError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { type ContentId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { checkIntents } from '../../src/bytes/consistency-check.ts';
import { Intents } from '../../src/store/intents.ts';
import { writeNode } from '../../src/store/node-table.ts';
import type { NodeRecord } from '../../src/store/tables.ts';
import type { SyncEvent } from '../../src/sync/sync-event.ts';
import { SyncLoop } from '../../src/sync/sync-loop.ts';
import type { SyncOptions } from '../../src/sync/sync-options.ts';
import { ListingFence } from '../../src/tree/listing-fence.ts';
import { Names } from '../../src/tree/names.ts';
import { NodeChanges } from '../../src/tree/node-changes.ts';
import { Tree } from '../../src/tree/tree.ts';
import { checkEachRecord } from '../harness/checked-records.ts';
import { MemoryStore } from '../tree/memory-store.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { MemoryContents } from './memory-contents.ts';
import { type Fate, MODEL_ROOT, ModelService } from './model-service.ts';

export const SETTLE_MS = 2_000;
/** In the place of the bytes of a file that nobody has filled yet. */
export const UNFILLED = 'stub';

/** It has no state, and its patterns take a while. */
const NAMES = new Names();

/** The file-system side down to its sync, over a service that does what a test says; time stands still until told. */
export class SyncWorld {
  readonly clock = new ManualClock();
  readonly service: ModelService;
  readonly store = new MemoryStore();
  readonly contents = new MemoryContents(this.store);
  readonly names = NAMES;
  readonly events: SyncEvent[] = [];
  readonly open = new Set<Inode>();
  readonly beingWritten = new Set<Inode>();
  /** Open for writing, also where what they hold may be pushed. */
  readonly openForWriting = new Set<Inode>();
  readonly #options: Partial<SyncOptions>;
  readonly #findings = checkEachRecord(this.store, checkIntents);
  health: ServiceHealth;
  intents: Intents;
  fence: ListingFence;
  tree: Tree;
  sync: SyncLoop;

  /** @param service another machine's, too */
  constructor(options: Partial<SyncOptions> = {}, service = new ModelService()) {
    this.#options = options;
    this.service = service;
    Tree.createRoot(this.store, this.clock, { resource: MODEL_ROOT, uid: 1, gid: 1 });
    const { health, intents, fence, tree, sync } = this.#start(false);
    this.health = health;
    this.intents = intents;
    this.fence = fence;
    this.tree = tree;
    this.sync = sync;
  }

  /** As after SIGKILL: what was on its way stays where it was, and nobody hears of it. `isContinued`: programs do not notice. */
  restart(underWay: Fate = { type: 'lose-reply' }, isContinued = false): void {
    const lost = this.service.pending.splice(0);
    void this.sync.stop();
    for (const request of lost) request.settle(underWay);
    const { health, intents, fence, tree, sync } = this.#start(isContinued);
    this.health = health;
    this.intents = intents;
    this.fence = fence;
    this.tree = tree;
    this.sync = sync;
  }

  #start(isContinued: boolean): {
    health: ServiceHealth;
    intents: Intents;
    fence: ListingFence;
    tree: Tree;
    sync: SyncLoop;
  } {
    const { store, contents, clock, names, service } = this;
    const intents = new Intents(store);
    const fence = new ListingFence({ store, intents });
    const options = { saveWindowMs: 60_000, settleMs: SETTLE_MS };
    const changes = new NodeChanges();
    const tree = new Tree({
      ...{ store, contents, names, intents, fence, clock, changes, log: silentLogger, options },
      openFiles: () => [...this.open].map((ino) => ({ ino, isWritten: this.beingWritten.has(ino) })),
    });
    const health = new ServiceHealth({ clock });
    const sync = new SyncLoop({
      health,
      store,
      contents,
      names,
      intents,
      vacated: tree.vacated,
      changes: service,
      uploads: service,
      complete: async (content) => this.#complete(content),
      isOpen: (ino) => this.open.has(ino),
      isBeingWritten: (ino) => this.beingWritten.has(ino),
      isOpenForWriting: (ino) => this.openForWriting.has(ino) || this.beingWritten.has(ino),
      clock,
      log: silentLogger,
      onEvent: (event) => this.events.push(event),
      onTreeChange: () => {},
      options: {
        settleMs: SETTLE_MS,
        transfers: 4,
        saveWindowMs: 60_000,
        deletion: 'trash',
        plainPutMaxBytes: 8,
        host: 'host',
        ...this.#options,
      },
    });
    changes.on('local', (ino) => sync.changed(ino));
    sync.start(isContinued);
    return { health, intents, fence, tree, sync };
  }

  // What users do. Paths are `/a/b`.

  mkdir(path: string): NodeRecord {
    const { parent, name } = this.#place(path);
    return this.tree.create(parent, name, { kind: 'folder', mode: 0o755, uid: 1, gid: 1 });
  }

  /** Creates or overwrites a whole file, and closes it. */
  write(path: string, text: string): NodeRecord {
    const { parent, name } = this.#place(path);
    const node =
      this.tree.child(parent, name) ?? this.tree.create(parent, name, { kind: 'file', mode: 0o644, uid: 1, gid: 1 });
    const content = this.store.transact((tx) => {
      const draft = this.contents.createDraft(tx, null);
      return draft;
    });
    const bytes = Buffer.from(text);
    this.contents.write(content, 0, bytes);
    return this.tree.change(node.ino, { content, sizeBytes: bytes.byteLength });
  }

  /** Changes some bytes of a file in place. */
  patch(path: string, offset: number, text: string): NodeRecord {
    let node = this.node(path);
    if (node.local?.content === null) {
      node = this.#pin(node);
    }
    const base = node.local?.content ?? null;
    const sizeBytes = node.local?.sizeBytes ?? 0;
    const content = this.store.transact((tx) =>
      this.contents.createDraft(tx, base === null ? null : { content: base, sizeBytes }),
    );
    this.contents.write(content, offset, Buffer.from(text));
    return this.tree.change(node.ino, { content, sizeBytes: this.contents.sizeOf(content) });
  }

  /** As the first read of a file. */
  pin(path: string): NodeRecord {
    return this.#pin(this.node(path));
  }

  /** As the first read or partial write of a file whose version is not known yet. */
  #pin(node: NodeRecord): NodeRecord {
    const { local, remote } = node;
    const newest =
      remote && this.service.history(this.service.now(remote.resource)).find((version) => version.complete);
    if (!newest || !local) return node;
    return this.store.transact((tx) => {
      const content = this.contents.versionContent(tx, newest.url, remote.resource, newest.sizeBytes);
      const { sizeBytes } = newest;
      const after = { ...node, local: { ...local, content, sizeBytes }, remote: { ...remote, content, sizeBytes } };
      writeNode(tx, node, after, this.clock.nowMs());
      return after;
    });
  }

  rename(from: string, to: string, mode: 'replace' | 'exchange' = 'replace'): void {
    const a = this.#place(from);
    const b = this.#place(to);
    this.tree.rename(a.parent, a.name, b.parent, b.name, mode);
  }

  remove(path: string): void {
    const { parent, name } = this.#place(path);
    const kind = this.tree.child(parent, name)?.kind === 'folder' ? 'folder' : 'file';
    this.tree.remove(parent, name, kind);
  }

  removeAll(path: string): void {
    const node = this.node(path);
    if (node.kind === 'folder') {
      for (const { name } of [...this.tree.children(node.ino)]) this.removeAll(`${path}/${name}`);
    }
    this.remove(path);
  }

  node(path: string): NodeRecord {
    const node = this.find(path);
    if (node === undefined) throw new Error(`no ${path}`);
    return node;
  }

  find(path: string): NodeRecord | undefined {
    let node = this.tree.node(ROOT_INODE);
    for (const name of path.split('/').filter((part) => part !== '')) {
      if (node === undefined) return undefined;
      node = this.tree.child(node.ino, name);
    }
    return node;
  }

  #place(path: string): { parent: Inode; name: string } {
    const cut = path.lastIndexOf('/');
    return { parent: this.node(path.slice(0, cut)).ino, name: path.slice(cut + 1) };
  }

  /** Everything that lies on the service becomes known, as after listing every folder. */
  learn(): void {
    const walk = (ino: Inode): void => {
      const resource = this.tree.node(ino)?.remote?.resource;
      if (resource === undefined) return;
      let entries = this.service.resources.has(resource) ? this.service.listing(resource) : [];
      for (let round = 0; round === 0 || (entries.length > 0 && round < 3); round++) {
        const sequence = this.fence.nextSequence();
        const outcome = this.tree.merge(ino, entries, sequence, this.clock.nowMs(), null);
        for (const question of outcome.questions) {
          this.tree.resolveAbsence(question.ino, this.service.look(question.resource), sequence, true);
        }
        this.fence.finish(sequence);
        entries = outcome.postponed.length > 0 ? this.service.listing(resource) : [];
      }
      for (const { node } of [...this.tree.children(ino)]) if (node.kind === 'folder') walk(node.ino);
    };
    walk(ROOT_INODE);
  }

  /** `path → bytes`, as `ModelService.tree` has it. Bytes that are not here are those of the resource's newest version. */
  localTree(): Map<string, string | null> {
    const found = new Map<string, string | null>();
    const walk = (ino: Inode, path: string): void => {
      for (const { name, node } of this.tree.children(ino)) {
        const at = `${path}/${name}`;
        found.set(at, node.kind === 'folder' ? null : this.bytesOf(node));
        if (node.kind === 'folder') walk(node.ino, at);
      }
    };
    walk(ROOT_INODE, '');
    return found;
  }

  /** A file's bytes as a reader would get them; `'nowhere'` when they cannot be had from anywhere. */
  bytesOf(node: NodeRecord): string {
    const content = node.local?.content ?? null;
    if (content === null) {
      const resource = node.remote?.resource;
      if (resource === undefined || !this.service.resources.has(this.service.now(resource))) return 'nowhere';
      return this.service.bytesOf(resource)?.toString() ?? UNFILLED;
    }
    const sizeBytes = this.contents.sizeOf(content);
    try {
      this.#completeAll(content, sizeBytes);
    } catch {
      return 'nowhere';
    }
    const bytes = this.contents.readAll(content, { start: 0, end: sizeBytes });
    return bytes === null ? 'nowhere' : Buffer.from(bytes).toString();
  }

  #completeAll(content: ContentId, sizeBytes: number): void {
    for (const piece of this.contents.pieces(content, { start: 0, end: sizeBytes })) {
      if (piece.kind === 'missing') this.#complete(piece.content);
    }
  }

  #complete(content: ContentId): void {
    const version = this.contents.record(content)?.version;
    const bytes = version ? this.service.bytesOfVersion(version) : null;
    if (bytes === null) throw new ApiError(404, 'GET version data', 'the version is gone');
    this.contents.landed(content, { start: 0, end: bytes.byteLength }, bytes);
  }

  // How the test goes on.

  /** Lets everything happen that needs neither time nor an answer. @throws Error if a record was unsound (`checkIntents`) */
  async quiet(): Promise<void> {
    for (let calm = 0, seen = -1; calm < 3; ) {
      await new Promise((resolve) => setImmediate(resolve));
      const now = this.service.requests.length * 1_000 + this.service.pending.length;
      calm = now === seen ? calm + 1 : 0;
      seen = now;
    }
    if (this.#findings.length > 0) throw new Error(this.#findings.join('\n'));
  }

  /** Time passes and everything is answered, until nothing is left to be pushed. */
  async converge(roundsMax = 400): Promise<void> {
    for (let round = 0, idle = 0; round < roundsMax; round++) {
      await this.quiet();
      if (this.service.pending.length > 0) {
        this.service.settleAll({ type: 'answer' });
        idle = 0;
        continue;
      }
      // What waits for something parked goes on when that does.
      if (++idle > 60 && this.sync.status().parked.length > 0) return;
      const { pending, parked } = this.sync.status();
      if (pending === parked.length && [...this.intents.open()].length === 0) return;
      this.clock.advance(SETTLE_MS);
    }
    throw new Error(
      `nothing moves: ${JSON.stringify([...this.store.all('dirty')])} ${this.service.requests.slice(-8)}`,
    );
  }

  /** The settle time passes and everything is answered as `fate` says (by default: answered). */
  async settle(): Promise<void> {
    this.clock.advance(SETTLE_MS + 1);
    await this.converge();
  }
}
