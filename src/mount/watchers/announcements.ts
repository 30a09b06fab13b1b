import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { type Inode, type NodeKind, ROOT_INODE } from '../../base/vocabulary.ts';
import type { StoreReader } from '../../store/tables.ts';
import { pathOf } from '../../sync/sync-event.ts';
import type { Tree, TreeInvalidation } from '../../tree/tree.ts';
import { type AnnouncedCall, type AnnouncedCalls, lookCall } from './announced-calls.ts';
import type { Announcer, CallFields } from './announcer.ts';

/** Changes that wait for their call; later ones are not announced. */
const WAITING_MAX = 1_000;
/** The most calls in a second. */
const CALLS_PER_SECOND_MAX = 100;
/** The announcer ends after this time without a change. */
const IDLE_MS = 60_000;

/** A change of the tree that no program of this machine made through the mount. */
export type Announcement =
  | { readonly what: 'appeared'; readonly parent: Inode; readonly name: string }
  | { readonly what: 'gone'; readonly parent: Inode; readonly name: string; readonly isFolder: boolean }
  | { readonly what: 'moved'; readonly parent: Inode; readonly name: string; readonly ino: Inode }
  | { readonly what: 'changed'; readonly ino: Inode };

/** Where the mount is. */
export interface MountPlace {
  readonly directory: string;
  /** MAJOR:MINOR */
  readonly device: string;
  /** Resolves when the mount is gone. */
  readonly ended: Promise<unknown>;
  /** Resolves when the kernel has dropped its outdated names. */
  notificationsFlushed(): Promise<void>;
}

/** The announcer, as far as it is used here. */
export type AnnouncerProcess = Pick<Announcer, 'pid' | 'perform' | 'end' | 'kill'>;

export interface AnnouncementsDeps {
  /** Starts the announcer. `onEnd`: see `Announcer`. */
  readonly begin: (onEnd: () => void) => AnnouncerProcess;
  readonly calls: AnnouncedCalls;
  readonly store: StoreReader;
  readonly tree: Pick<Tree, 'node' | 'child' | 'isComplete'>;
  /** Whether programs used the folder lately. */
  readonly isInUse: (folder: Inode) => boolean;
  readonly onStart?: (place: MountPlace) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Reports changes made elsewhere to inotify(7) watchers: the announcer repeats them in the mount. Only folders that programs used lately are
 * watched by any, as far as can be known here. Nothing runs before the first such change.
 */
export class Announcements {
  readonly #deps: AnnouncementsDeps;
  readonly #waiting: Announcement[] = [];
  #place: MountPlace | null = null;
  #announcer: AnnouncerProcess | null = null;
  #isPumping = false;
  #isOver = false;
  #cancelIdle: () => void = () => {};
  #ended: (() => void) | null = null;
  /** Start of the current second of `CALLS_PER_SECOND_MAX`, and the calls in it. */
  #secondMs = 0;
  #calls = 0;

  constructor(deps: AnnouncementsDeps) {
    this.#deps = deps;
  }

  /** The mount is there. */
  start(place: MountPlace): void {
    this.#place = place;
    this.#deps.onStart?.(place);
    void place.ended.then(() => this.stop());
  }

  /** The operations for the requests of the announcer. */
  get calls(): AnnouncedCalls {
    return this.#deps.calls;
  }

  /** Resolves when the announcer uses nothing of the mount any more. No change is announced from now on. */
  async stop(): Promise<void> {
    this.#isOver = true;
    this.#waiting.length = 0;
    this.#cancelIdle();
    if (this.#announcer === null) return;
    const ended = new Promise<void>((resolve) => {
      this.#ended = resolve;
    });
    this.#announcer.kill();
    // It cannot be killed while it waits for a reply.
    await Promise.race([ended, this.#deps.clock.sleep(1_000)]);
  }

  /** Announces changes of the tree that are already applied. Returns immediately. */
  changed(changes: readonly TreeInvalidation[]): void {
    this.#announce(announcementsOf(changes, this.#deps));
  }

  /** Announces files as changed, so that a program that gave them up looks at them again. Returns immediately. */
  readable(inos: readonly Inode[]): void {
    const { tree, isInUse } = this.#deps;
    const isWatched = (ino: Inode): boolean => {
      const parent = tree.node(ino)?.local?.parent;
      return parent !== undefined && isInUse(parent);
    };
    this.#announce(inos.filter(isWatched).map((ino) => ({ what: 'changed', ino })));
  }

  #announce(announcements: readonly Announcement[]): void {
    if (this.#isOver || this.#place === null) return;
    for (const announcement of announcements) {
      if (this.#waiting.length >= WAITING_MAX) {
        this.#deps.log.debug({ waiting: WAITING_MAX }, 'too many changes at once: not all are announced');
        break;
      }
      this.#waiting.push(announcement);
    }
    if (this.#waiting.length > 0 && !this.#isPumping) void this.#pump(this.#place);
  }

  async #pump(place: MountPlace): Promise<void> {
    this.#isPumping = true;
    try {
      while (this.#waiting.length > 0) {
        await this.#turn();
        await place.notificationsFlushed();
        const announcement = this.#waiting.shift();
        // The tree may have changed again meanwhile.
        const call = announcement === undefined ? null : callOf(announcement, this.#deps.tree);
        if (call !== null) await this.#make(call, place);
      }
    } catch (err) {
      this.#deps.log.warn({ err }, 'changes are not announced any more');
      this.#isOver = true;
      this.#announcer?.kill();
    } finally {
      this.#isPumping = false;
    }
  }

  /** Waits if there were too many calls in this second. */
  async #turn(): Promise<void> {
    const { clock } = this.#deps;
    const sinceMs = clock.elapsedMs() - this.#secondMs;
    if (this.#calls >= CALLS_PER_SECOND_MAX && sinceMs < 1_000) await clock.sleep(1_000 - sinceMs);
    if (clock.elapsedMs() - this.#secondMs < 1_000) return;
    this.#secondMs = clock.elapsedMs();
    this.#calls = 0;
  }

  async #make(call: AnnouncedCall, place: MountPlace): Promise<void> {
    const { calls, log, clock } = this.#deps;
    const announcer = this.#announcer ?? (await this.#begin(place));
    if (announcer === null || this.#isOver) return;
    this.#calls += 1;
    const { errno, isMade } = await this.#perform(announcer, call, place);
    if (!isMade) log.debug({ call, errno }, 'a change was not announced');
    this.#cancelIdle();
    this.#cancelIdle = clock.after(IDLE_MS, () => {
      if (!this.#isPumping) announcer.end();
    });
    if (announcer.pid === null) calls.process(null);
  }

  /** Starts the announcer, if the kernel knows it by the process id that we know. */
  async #begin(place: MountPlace): Promise<AnnouncerProcess | null> {
    const { calls, log } = this.#deps;
    const announcer = this.#deps.begin(() => {
      calls.process(null);
      this.#announcer = null;
      this.#ended?.();
    });
    this.#announcer = announcer;
    calls.process(announcer.pid);
    if (announcer.pid === null) return null;
    const { errno, isMade } = await this.#perform(announcer, lookCall(`.cfs-announcer-${randomUUID()}`), place);
    if (isMade) return announcer;
    // In another PID namespace than the mount, or the directory leads elsewhere.
    if (announcer.pid !== null && !this.#isOver) {
      log.info({ errno }, 'changes made elsewhere are not shown to inotify: the kernel does not know the announcer');
      this.#isOver = true;
      announcer.kill();
    }
    return null;
  }

  async #perform(
    announcer: AnnouncerProcess,
    call: AnnouncedCall,
    place: MountPlace,
  ): Promise<{ readonly errno: number; readonly isMade: boolean }> {
    const fields = this.#fieldsOf(call, place);
    this.#deps.calls.issue(call);
    const errno = await announcer.perform(fields);
    return { errno, isMade: this.#deps.calls.returned() };
  }

  #fieldsOf(call: AnnouncedCall, { directory, device }: MountPlace): CallFields {
    const pathTo = (folder: Inode): string => join(directory, pathOf(this.#deps.store, folder));
    const newParent = call.op === 'rename' ? call.newParent : null;
    const time = call.op === 'touch' ? `${call.mtime.sec}.${call.mtime.nsec}` : '';
    return [
      ...([call.op, device, pathTo(call.parent), call.parent, call.name] as const),
      newParent === null ? '' : pathTo(newParent),
      newParent ?? ROOT_INODE,
      call.op === 'rename' ? call.newName : '',
      time,
    ];
  }
}

/** The changes that a watcher can see. The first listing of a folder changes nothing in it. */
export function announcementsOf(
  changes: readonly TreeInvalidation[],
  { tree, isInUse }: Pick<AnnouncementsDeps, 'tree' | 'isInUse'>,
): readonly Announcement[] {
  const isWatched = (folder: Inode): boolean => isInUse(folder) && tree.isComplete(folder);
  const moved = new Set<Inode>();
  const found: Announcement[] = [];
  for (const change of changes) {
    if (change.kind === 'inode') {
      const local = tree.node(change.ino)?.local;
      const { was } = change;
      if (local == null || was === null || !isWatched(local.parent)) continue;
      const { sec, nsec } = was.mtime;
      const isSame = was.content === local.content && was.sizeBytes === local.sizeBytes;
      if (!isSame || sec !== local.mtime.sec || nsec !== local.mtime.nsec)
        found.push({ what: 'changed', ino: change.ino });
      continue;
    }
    // A watcher of a folder begins with its listing.
    if (change.kind === 'first-entries') continue;
    const { parent, name } = change;
    if (change.kind === 'deleted') {
      if (isWatched(parent)) found.push({ what: 'gone', parent, name, isFolder: change.isFolder ?? false });
    } else if (change.ino !== undefined) {
      const target = tree.node(change.ino)?.local?.parent;
      if (!isWatched(parent) && (target === undefined || !isWatched(target))) continue;
      moved.add(change.ino);
      found.push({ what: 'moved', parent, name, ino: change.ino });
    } else if (isWatched(parent)) {
      const ino = tree.child(parent, name)?.ino;
      if (ino !== undefined && !moved.has(ino)) found.push({ what: 'appeared', parent, name });
    }
  }
  return found;
}

/** The call that repeats a change; null if the tree has changed again. */
export function callOf(announcement: Announcement, tree: Pick<Tree, 'node' | 'child'>): AnnouncedCall | null {
  if (announcement.what === 'changed') {
    const node = tree.node(announcement.ino);
    if (node?.kind !== 'file' || node.local === null) return null;
    const { parent, name, mtime } = node.local;
    return { op: 'touch', parent, name, ino: node.ino, mtime };
  }
  const { parent, name } = announcement;
  const child = tree.child(parent, name);
  switch (announcement.what) {
    case 'appeared':
      return child === undefined ? null : creationOf(child.ino, child.kind, parent, name);
    case 'gone':
      return child !== undefined || tree.node(parent)?.local == null
        ? null
        : { op: announcement.isFolder ? 'rmdir' : 'unlink', parent, name };
    case 'moved': {
      const node = tree.node(announcement.ino);
      if (node?.local == null) return null;
      const { parent: newParent, name: newName } = node.local;
      if (child === undefined) return { op: 'rename', parent, name, newParent, newName, ino: node.ino };
      return creationOf(node.ino, node.kind, newParent, newName);
    }
  }
}

function creationOf(ino: Inode, kind: NodeKind, parent: Inode, name: string): AnnouncedCall | null {
  if (kind !== 'file' && kind !== 'folder') return null;
  return { op: kind === 'file' ? 'mknod' : 'mkdir', parent, name, ino };
}
