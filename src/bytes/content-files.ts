import { existsSync, fstatSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { descriptorLimit } from '../base/descriptor-limit.ts';
import { isOutOfDescriptors, StorageError } from '../base/errors.ts';
import { BLOCK_BYTES, type ContentId } from '../base/vocabulary.ts';
import { type Disk, storageErrorOf } from '../store/disk.ts';
import { SharedSyncs } from './shared-syncs.ts';
import type { WritePace } from './write-pace.ts';

/** Drafts are the user's only copy, the cache is not: they lie in different folders. */
export type Place = 'drafts' | 'cache';

/** Frees blocks of a file on the disk (hole punching). Without it, whole files are removed instead. */
export interface HolePunch {
  punchHole(fd: number, offset: number, length: number): void;
}

/** Limits for open files without a lease: a number, and a share of this process's RLIMIT_NOFILE. The lower one applies. */
const IDLE_DESCRIPTORS_MAX = 256;
const IDLE_SHARE = 1 / 4;
/** Descriptors reserved for connections, the control socket, the journal and LMDB; half of a low limit. */
const OTHER_DESCRIPTORS = 96;
/** cachedir.org: backup programs leave such a folder out. */
const CACHE_TAG = 'Signature: 8a477f597d28d172789f06886806bc55\n# Blocks that can be fetched again (cfs-mount).\n';

const SHARD_NAME = /^[0-9a-f]{2}$/;

/** One sparse file per larger content, spread over 256 folders so that none grows without limit. */
export class ContentFiles {
  readonly #directory: string;
  readonly #disk: Disk;
  readonly #holes: HolePunch | null;
  /** Open descriptors, least recently used first. */
  readonly #open = new Map<ContentId, { readonly fd: number; look: number }>();
  /** Leases: their descriptors stay open. */
  readonly #held = new Map<ContentId, number>();
  #freed = 0;
  /** Number of the look that is under way, or was last. */
  #look = 0;
  #isLooking = false;
  /** Files to be removed when their last lease ends. */
  readonly #doomed = new Set<ContentId>();
  /** Files that this run created: a record may not name them yet. */
  readonly #made = new Set<ContentId>();
  /** Files that could not be moved (the disk had no room for a folder), with their actual place, which differs from their records. */
  readonly #strays = new Map<ContentId, Place>();
  /** The files whose bytes, and the folders whose entries, are on the disk. */
  readonly #syncedFiles = new SharedSyncs<ContentId>();
  readonly #syncedFolders = new SharedSyncs<string>();
  /** Files whose sync failed: the kernel reports that once, and may have dropped the bytes. */
  readonly #lost = new Map<ContentId, StorageError>();
  readonly #folders = new Set<string>();
  readonly #pace: WritePace | null;
  readonly #idleMax: number;
  /** Held ones included. */
  readonly #openMax: number;
  /** Descriptors that the thread pool writes to. INVARIANT: at most one write each, because OpenFile serializes a file's changes. */
  readonly #written = new Set<number>();
  /** Shared buffer for reading blocks: allocating one for each costs more than the read. */
  readonly #scratch = Buffer.allocUnsafeSlow(BLOCK_BYTES);

  /** @param deps `descriptorLimit`: of this process; for tests */
  constructor(deps: {
    directory: string;
    disk: Disk;
    holes: HolePunch | null;
    pace: WritePace | null;
    descriptorLimit?: number;
  }) {
    const limit = deps.descriptorLimit ?? descriptorLimit();
    this.#idleMax = Math.min(IDLE_DESCRIPTORS_MAX, Math.floor(limit * IDLE_SHARE));
    this.#openMax = limit - Math.min(OTHER_DESCRIPTORS, Math.floor(limit / 2));
    this.#directory = deps.directory;
    this.#disk = deps.disk;
    this.#pace = deps.pace;
    this.#holes = deps.holes;
    for (const place of ['drafts', 'cache'] as const) deps.disk.makeDirectory(join(deps.directory, place));
    const tag = join(deps.directory, 'cache', 'CACHEDIR.TAG');
    try {
      if (!existsSync(tag)) writeFileSync(tag, CACHE_TAG, { mode: 0o600 });
    } catch {
      // A full disk: a later start writes it.
    }
  }

  get canPunchHoles(): boolean {
    return this.#holes !== null;
  }

  path(id: ContentId, place: Place): string {
    return join(this.#folder(id, this.#strays.get(id) ?? place), String(id));
  }

  /**
   * `path`, for a caller that creates the file if it is missing. A file that a crash left in the other place, between the record of an adoption
   * and the move, is moved first: a second file would hide its bytes.
   *
   * @returns null if the open file was unlinked from outside: a new one of its name would not be the one that is read
   */
  find(id: ContentId, place: Place): string | null {
    const path = this.path(id, place);
    const named = statSync(path, { throwIfNoEntry: false });
    const open = this.#open.get(id);
    if (open !== undefined) return fstatSync(open.fd).ino === named?.ino ? path : null;
    if (named !== undefined) return path;
    const other = place === 'cache' ? 'drafts' : 'cache';
    if (!existsSync(join(this.#folder(id, other), String(id)))) {
      this.#disk.makeDirectory(dirname(path)); // its folder may be gone as well
      return path;
    }
    try {
      this.move(id, other, place);
    } catch {
      // The file is used in its present place.
    }
    return this.path(id, place);
  }

  /** Whether the file exists in either place: open, or with a name. */
  isThere(id: ContentId): boolean {
    if (this.#open.has(id)) return true;
    return (['cache', 'drafts'] as const).some((place) => existsSync(join(this.#folder(id, place), String(id))));
  }

  /** Disk space of the file; 0 if there is none. */
  diskBytes(id: ContentId, place: Place): number {
    return this.#disk.diskBytes(this.path(id, place));
  }

  /** Creates an empty file; replaces one that an earlier run left under this id. */
  create(id: ContentId, place: Place): number {
    this.close(id);
    const folder = this.#folder(id, place);
    this.#makeFolder(folder);
    const fd = this.#opened(join(folder, String(id)), 'create');
    this.#strays.delete(id);
    this.#syncedFiles.changed(id);
    this.#syncedFolders.changed(folder);
    this.#lost.delete(id);
    this.#made.add(id);
    this.#keep(id, fd);
    return fd;
  }

  /** Undoes `create`; its descriptor must not be in use. */
  unmake(id: ContentId, place: Place): void {
    this.close(id);
    this.#made.delete(id);
    try {
      this.#disk.remove(this.path(id, place));
    } catch {
      // The file is removed with the content.
    }
  }

  /** The file was made by an earlier process, whose work this one continues. */
  isMade(id: ContentId): void {
    this.#made.add(id);
  }

  /** Whether the file was made in this run and is still there. */
  wasMade(id: ContentId): boolean {
    return this.#made.has(id);
  }

  /** The descriptor of an existing file; valid until the next call, longer while the content is held. */
  descriptor(id: ContentId, place: Place): number {
    const open = this.#open.get(id);
    if (open !== undefined) {
      this.#open.delete(id);
      this.#open.set(id, open);
      open.look = this.#look;
      return open.fd;
    }
    let fd: number;
    try {
      fd = this.#opened(this.path(id, place), 'write');
    } catch (error) {
      if (isOutOfDescriptors(error)) throw error;
      // A crash between the record of an adoption and the move of the file.
      this.#adoptStray(id, place, error);
      fd = this.#opened(this.path(id, place), 'write');
    }
    this.#keep(id, fd);
    return fd;
  }

  read(id: ContentId, place: Place, target: Uint8Array, position: number): number {
    return this.#disk.read(this.descriptor(id, place), target, position);
  }

  /** Reads up to a block, fewer bytes at the end of the file. The buffer is lent: valid until the next call. */
  lend(id: ContentId, place: Place, position: number, length: number): Uint8Array {
    const bytes = this.#scratch.subarray(0, length);
    return bytes.subarray(0, this.read(id, place, bytes, position));
  }

  /** Fills `target` from a descriptor that a piece named; a file that ends early reads as zeros. */
  readSlice(fd: number, target: Uint8Array, position: number): void {
    target.fill(0, this.#disk.read(fd, target, position));
  }

  write(id: ContentId, place: Place, bytes: Uint8Array, position: number): void {
    this.#syncedFiles.changed(id);
    this.#disk.write(this.descriptor(id, place), bytes, position);
  }

  /**
   * For a stream of writes: immediately, or in the thread pool while the system throttles writers. Until the promise settles, `bytes` must stay
   * unchanged and the file is held.
   */
  writeAtPace(id: ContentId, place: Place, bytes: Uint8Array, position: number): void | Promise<void> {
    const pace = this.#pace;
    if (pace === null) return this.write(id, place, bytes, position);
    if (!pace.isHeldUp) return pace.timed(() => this.write(id, place, bytes, position));
    const fd = this.descriptor(id, place);
    this.hold(id);
    this.#written.add(fd);
    return pace
      .timedLater(() => this.#disk.writeLater(fd, bytes, position))
      .finally(() => {
        this.#written.delete(fd);
        this.#syncedFiles.changed(id);
        this.release(id);
      });
  }

  /** Makes a range read as zeros; punches a hole if the file system can. */
  zero(id: ContentId, place: Place, start: number, end: number): void {
    if (start >= end) return;
    if (this.punch(id, place, start, end)) {
      // Readers that open the file by its path need the range to exist.
      const fd = this.descriptor(id, place);
      if (this.#disk.sizeBytes(fd) < end) this.#disk.truncate(fd, end);
      return;
    }
    const zeros = new Uint8Array(Math.min(end - start, 1024 * 1024));
    for (let at = start; at < end; at += zeros.byteLength) {
      this.write(id, place, zeros.subarray(0, Math.min(zeros.byteLength, end - at)), at);
    }
  }

  /** Punches a hole; false if the file system cannot. */
  punch(id: ContentId, place: Place, start: number, end: number): boolean {
    if (this.#holes === null) return false;
    this.#syncedFiles.changed(id);
    try {
      this.#holes.punchHole(this.descriptor(id, place), start, end - start);
      return true;
    } catch {
      return false;
    }
  }

  /** Moves the file of an acknowledged draft into the cache. If it throws, the file is used in its old place until the next start. */
  move(id: ContentId, from: Place, to: Place): void {
    const folder = this.#folder(id, to);
    try {
      this.#makeFolder(folder);
      this.#disk.rename(join(this.#folder(id, from), String(id)), join(folder, String(id)));
    } catch (error) {
      this.#strays.set(id, from);
      throw error;
    }
    this.#strays.delete(id);
    this.#syncedFolders.changed(folder);
    this.#syncedFolders.changed(this.#folder(id, from));
  }

  /** Removes the file; if the content is held, when its last lease ends: its descriptor may be in use. */
  remove(id: ContentId): void {
    if (this.#held.has(id)) {
      this.#doomed.add(id);
      return;
    }
    this.close(id);
    this.#made.delete(id);
    this.#strays.delete(id);
    this.#syncedFiles.changed(id);
    this.#lost.delete(id);
    this.#disk.remove(this.path(id, 'drafts'));
    this.#disk.remove(this.path(id, 'cache'));
  }

  /**
   * Bytes and directory entry survive a power cut once this resolves.
   *
   * @throws StorageError (rejects) also if an earlier sync of the file failed for any caller
   */
  async sync(id: ContentId, place: Place): Promise<void> {
    this.hold(id);
    try {
      await this.#syncedFiles.of(id, () => this.#syncBytes(id, place));
      const folder = dirname(this.path(id, place));
      for (const each of [folder, dirname(folder), this.#directory]) {
        await this.#syncedFolders.of(each, () => this.#disk.syncDirectory(each));
      }
    } finally {
      this.release(id);
    }
  }

  /** Until `endLook`, requested descriptors stay open, held or not: no layer may get the reused number of another. */
  beginLook(): void {
    this.#look++;
    this.#isLooking = true;
  }

  endLook(): void {
    this.#isLooking = false;
  }

  /** Grows with each content that is no longer held. */
  get freed(): number {
    return this.#freed;
  }

  /** The descriptor stays open until each `hold` had its `release`. */
  hold(id: ContentId): void {
    this.#held.set(id, (this.#held.get(id) ?? 0) + 1);
  }

  release(id: ContentId): void {
    const count = (this.#held.get(id) ?? 0) - 1;
    if (count > 0) {
      this.#held.set(id, count);
      return;
    }
    this.#held.delete(id);
    this.#freed++;
    if (!this.#doomed.delete(id)) {
      // Programs may have had many files open at once: keeping these descriptors could leave none for the next open.
      if (this.#open.size > this.#idleMax) this.close(id);
      return;
    }
    try {
      this.remove(id);
    } catch {
      // The next stock-taking finds a file that no record names.
    }
  }

  isHeld(id: ContentId): boolean {
    return this.#held.has(id);
  }

  close(id: ContentId): void {
    const open = this.#open.get(id);
    if (open === undefined) return;
    this.#open.delete(id);
    this.#disk.close(open.fd);
  }

  /** Closes all but those that the thread pool writes to: their numbers must not be reused for another file. */
  closeAll(): void {
    for (const [id, { fd }] of [...this.#open]) if (!this.#written.has(fd)) this.close(id);
  }

  /** Those of the 256 folders that exist. A store with few files has few of them, and a missing one costs an exception. */
  shardsIn(place: Place): string[] {
    return this.#disk.list(join(this.#directory, place)).filter((name) => SHARD_NAME.test(name));
  }

  /** Ids of the files in one of these folders. */
  idsIn(place: Place, shard: string): ContentId[] {
    return this.#disk
      .list(join(this.#directory, place, shard))
      .map(Number)
      .filter((id) => Number.isSafeInteger(id) && id > 0) as ContentId[];
  }

  async #syncBytes(id: ContentId, place: Place): Promise<void> {
    const lost = this.#lost.get(id);
    if (lost !== undefined) throw lost;
    const fd = this.descriptor(id, place);
    try {
      await this.#disk.sync(fd);
    } catch (cause) {
      this.#lost.set(
        id,
        new StorageError(`bytes of content ${id} may be lost: its file could not be synced`, { cause }),
      );
      throw cause;
    }
  }

  #makeFolder(folder: string): void {
    if (this.#folders.has(folder)) return;
    this.#disk.makeDirectory(folder);
    this.#folders.add(folder);
    this.#syncedFolders.changed(dirname(folder));
  }

  /**
   * Opens a file; closes idle ones if no descriptor is left.
   *
   * @throws StorageError caused by EMFILE: programs have as many files open as this process can serve
   */
  #opened(path: string, how: 'write' | 'create'): number {
    if (this.#open.size >= this.#openMax) this.#closeIdle();
    if (this.#open.size >= this.#openMax)
      throw storageErrorOf(
        Object.assign(new Error('too many files are open'), { code: 'EMFILE' }),
        `cannot open ${path}`,
      );
    try {
      return this.#disk.open(path, how);
    } catch (error) {
      if (!isOutOfDescriptors(error)) throw error;
      this.#closeIdle();
      return this.#disk.open(path, how);
    }
  }

  #closeIdle(): void {
    for (const [id, { look }] of [...this.#open]) {
      const isNamed = this.#isLooking && look === this.#look;
      if (!isNamed && !this.#held.has(id)) this.close(id);
    }
  }

  #keep(id: ContentId, fd: number): void {
    this.#open.set(id, { fd, look: this.#look });
    if (this.#open.size <= this.#idleMax) return;
    for (const [other] of this.#open) {
      if (other === id || this.#held.has(other)) continue;
      this.close(other);
      if (this.#open.size <= this.#idleMax) return;
    }
  }

  #adoptStray(id: ContentId, place: Place, error: unknown): void {
    try {
      this.move(id, place === 'cache' ? 'drafts' : 'cache', place);
    } catch {
      this.#strays.delete(id);
      throw new StorageError(`the file of content ${id} is gone`, { cause: error });
    }
  }

  #folder(id: ContentId, place: Place): string {
    return join(this.#directory, place, shardName(id % 256));
  }
}

function shardName(shard: number): string {
  return shard.toString(16).padStart(2, '0');
}
