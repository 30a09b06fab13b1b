import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { SeededRandom } from './seeded-random.ts';

/** What `record-writes.c` wrote down. */
export interface DiskEvent {
  readonly type: number;
  readonly flags: number;
  readonly inode: number;
  readonly offset: number;
  readonly payload: Buffer;
}

const [OPENED, WROTE, SYNC_BEGINS, SYNC_ENDED, RENAMED, REMOVED, MADE_DIRECTORY, CUT_TO, PUNCHED, LINKED] = [
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
];
const PAGE_BYTES = 4096;
const EVENT_HEADER_BYTES = 22;
const CHANCES = { none: 0, few: 0.1, many: 0.9, any: 0.5 } as const;

export function* eventsOf(log: Buffer): Generator<DiskEvent> {
  for (let at = 0; at < log.byteLength; ) {
    const length = log.readUInt32LE(at + 2);
    yield {
      type: log[at] as number,
      flags: log[at + 1] as number,
      inode: Number(log.readBigUInt64LE(at + 6)),
      offset: Number(log.readBigUInt64LE(at + 14)),
      payload: log.subarray(at + EVENT_HEADER_BYTES, at + EVENT_HEADER_BYTES + length),
    };
    at += EVENT_HEADER_BYTES + length;
  }
}

interface PageWrite {
  readonly at: number;
  /** Null: zeros (a hole was punched). */
  readonly bytes: Buffer | null;
  readonly length: number;
  readonly time: number;
}

class FileState {
  /** What is on the disk for certain. */
  durable: Buffer = Buffer.alloc(0);
  sizeBytes = 0;
  /** Writes since the last sync, by page, oldest first. */
  pending = new Map<number, PageWrite[]>();
  syncBegan = 0;

  /** Cut to nothing. */
  empty(): void {
    this.durable = Buffer.alloc(0);
    this.sizeBytes = 0;
    this.pending.clear();
  }

  write(offset: number, bytes: Buffer | null, length: number, time: number): void {
    for (let at = offset; at < offset + length; ) {
      const page = Math.floor(at / PAGE_BYTES);
      const end = Math.min(offset + length, (page + 1) * PAGE_BYTES);
      const part = { at, bytes: bytes?.subarray(at - offset, end - offset) ?? null, length: end - at, time };
      const writes = this.pending.get(page);
      if (writes === undefined) this.pending.set(page, [part]);
      else writes.push(part);
      at = end;
    }
    if (bytes !== null) this.sizeBytes = Math.max(this.sizeBytes, offset + length);
  }

  /** Everything written before `time` has reached the disk. */
  settle(time: number): void {
    for (const [page, writes] of this.pending) {
      const later = writes.filter((write) => write.time >= time);
      for (const write of writes) if (write.time < time) this.durable = applied(this.durable, write);
      if (later.length === 0) this.pending.delete(page);
      else this.pending.set(page, later);
    }
  }

  /** The file as every process sees it. */
  whole(): Buffer {
    let bytes: Buffer = Buffer.from(this.durable);
    for (const writes of this.pending.values()) for (const write of writes) bytes = applied(bytes, write);
    return bytes;
  }

  /** The file after the cut: of each page some prefix of its pending writes is there. */
  image(random: SeededRandom): Buffer {
    let bytes: Buffer = Buffer.from(this.durable);
    const mood = random.pick(['none', 'few', 'many', 'any'] as const);
    for (const writes of this.pending.values()) {
      const chance = CHANCES[mood];
      if (random.next() >= chance) continue;
      const count = 1 + random.below(writes.length);
      for (const write of writes.slice(0, count)) bytes = applied(bytes, write);
    }
    return bytes;
  }
}

type NameChange =
  | { readonly kind: 'create'; readonly path: string; readonly file: FileState; readonly time: number }
  | { readonly kind: 'rename' | 'link'; readonly path: string; readonly to: string; readonly time: number }
  | { readonly kind: 'remove'; readonly path: string; readonly time: number };

/**
 * A disk with a volatile cache: keeps for certain only what was synced, page by page and name by name. `cut` says what a
 * power cut at this moment could leave.
 */
export class CrashingDisk {
  readonly #root: string;
  /** Files whose syncs do not work: what `noSync` would be. */
  readonly #deaf: (path: string) => boolean;
  /**
   * By inode, as long as that is the file's: a file system gives the number of a removed one to the next, but never before the removal is
   * on the disk. Names lead to the file itself, so that one whose removal a cut takes back is what it was.
   */
  readonly #files = new Map<number, FileState>();
  readonly #pathOf = new Map<number, string>();
  #names = new Map<string, FileState>();
  #pendingNames: NameChange[] = [];
  readonly #directories = new Set<string>();
  #time = 0;

  constructor(root: string, deaf: (path: string) => boolean = () => false) {
    this.#root = root;
    this.#deaf = deaf;
  }

  apply(event: DiskEvent): void {
    const time = ++this.#time;
    const { type, inode, offset, payload } = event;
    switch (type) {
      case OPENED: {
        const path = payload.toString();
        this.#pathOf.set(inode, path);
        if ((event.flags & 1) !== 0) {
          const file = new FileState();
          this.#files.set(inode, file);
          this.#pendingNames.push({ kind: 'create', path, file, time });
        } else if ((event.flags & 2) !== 0) {
          this.#file(inode).empty();
        }
        return;
      }
      case WROTE: {
        const file = this.#file(inode);
        file.write(offset, payload, payload.byteLength, time);
        if (event.flags === 1 && !this.#deaf(this.#pathOf.get(inode) ?? '')) {
          // O_DSYNC: this write, and only this, is on the disk.
          for (const [page, writes] of file.pending) {
            const own = writes.filter((write) => write.time === time);
            if (own.length === 0) continue;
            for (const write of own) file.durable = applied(file.durable, write);
            file.pending.set(
              page,
              writes.filter((write) => write.time !== time),
            );
            if (file.pending.get(page)?.length === 0) file.pending.delete(page);
          }
        }
        return;
      }
      case PUNCHED:
        this.#file(inode).write(offset, null, Number(payload.readBigUInt64LE()), time);
        return;
      case CUT_TO:
        return; // only ever grows a file here
      case SYNC_BEGINS:
        this.#file(inode).syncBegan = time;
        return;
      case SYNC_ENDED: {
        const path = this.#pathOf.get(inode) ?? '';
        if (this.#deaf(path)) return;
        const file = this.#file(inode);
        file.settle(file.syncBegan);
        this.#settleNames(path, file.syncBegan);
        return;
      }
      case RENAMED:
      case LINKED: {
        const [path = '', to = ''] = payload.toString().split('\0');
        this.#pendingNames.push({ kind: type === LINKED ? 'link' : 'rename', path, to, time });
        return;
      }
      case REMOVED:
        this.#pendingNames.push({ kind: 'remove', path: payload.toString().split('\0')[0] as string, time });
        return;
      case MADE_DIRECTORY:
        this.#directories.add(payload.toString().split('\0')[0] as string);
        return;
    }
  }

  /** Writes into `target` what a power cut now could leave. */
  cut(target: string, random: SeededRandom): void {
    const names = new Map(this.#names);
    for (const change of this.#pendingNames.slice(0, random.below(this.#pendingNames.length + 1)))
      applyName(names, change);
    this.#write(target, names, (file) => file.image(random));
  }

  /** Writes into `target` what SIGKILL now would leave: everything. */
  copy(target: string): void {
    const names = new Map(this.#names);
    for (const change of this.#pendingNames) applyName(names, change);
    this.#write(target, names, (file) => file.whole());
  }

  #write(target: string, names: ReadonlyMap<string, FileState>, bytesOf: (file: FileState) => Buffer): void {
    for (const directory of this.#directories) mkdirSync(this.#in(target, directory), { recursive: true });
    for (const [path, file] of names) {
      if (path.endsWith('lock.mdb')) continue;
      const copy = this.#in(target, path);
      mkdirSync(dirname(copy), { recursive: true });
      writeFileSync(copy, bytesOf(file));
    }
  }

  #in(target: string, path: string): string {
    return join(target, path.slice(this.#root.length));
  }

  #file(inode: number): FileState {
    let file = this.#files.get(inode);
    if (file === undefined) {
      file = new FileState();
      this.#files.set(inode, file);
    }
    return file;
  }

  /** A synced directory has its entries; a synced new file has (on file systems of our time) its own. */
  #settleNames(path: string, before: number): void {
    const rest: NameChange[] = [];
    for (const change of this.#pendingNames) {
      const settled =
        change.time < before && (dirname(change.path) === path || ('to' in change && dirname(change.to) === path));
      if (settled) applyName(this.#names, change);
      else rest.push(change);
    }
    this.#pendingNames = rest;
  }
}

function applyName(names: Map<string, FileState>, change: NameChange): void {
  if (change.kind === 'create') {
    names.set(change.path, change.file);
    return;
  }
  const file = names.get(change.path);
  if (change.kind !== 'link') names.delete(change.path);
  if (change.kind !== 'remove' && file !== undefined) names.set(change.to, file);
}

function applied(file: Buffer, { at, bytes, length }: PageWrite): Buffer {
  let target: Buffer = file;
  if (bytes !== null && file.byteLength < at + length) {
    target = Buffer.alloc(at + length);
    file.copy(target);
  }
  if (bytes !== null) bytes.copy(target, at);
  else target.fill(0, Math.min(at, target.byteLength), Math.min(at + length, target.byteLength));
  return target;
}
