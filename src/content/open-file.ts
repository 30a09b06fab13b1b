import { unlessAborted } from '../base/abort.ts';
import type { WritingState } from '../base/draft-record.ts';
import { FsError } from '../base/errors.ts';
import type { RemoteVersion } from '../base/resources.ts';
import {
  type ContentId,
  type Extent,
  type Inode,
  type ResourceUrl,
  type Timespec,
  timespecOfMs,
} from '../base/vocabulary.ts';
import type { Lease } from '../bytes/contents.ts';
import { isContentDirty, isSuspect, writeNode } from '../store/node-table.ts';
import type { FileBytes, LocalFacet, NodeRecord } from '../store/tables.ts';
import type { Caller, PresentPiece } from './block-reader.ts';
import { withEarlyBytes } from './early-bytes.ts';
import { madeOver, recordNewest } from './newest-version.ts';
import type { OpenFileDepsOf } from './open-file-deps.ts';
import { noteFailure, OrderedChanges } from './ordered-changes.ts';
import { ReadProgress } from './read-progress.ts';
import { seekIn } from './seek.ts';
import {
  type ContentPlace,
  changedAt,
  isJustEmptied,
  resumedAt,
  type UnflushedAttributes,
  type Writing,
  writtenAt,
} from './writing.ts';

export type OpenFileDeps = OpenFileDepsOf<OpenFile>;

const NO_LONGER_KEPT = 'the service no longer has what was opened';

/**
 * The bytes of one file as its handles see them: one object per inode in use, shared by its handles.
 *
 * Reading pins a version at the first miss: one open never mixes two. The first write makes a draft over what was there;
 * `flush` writes the draft down so that it survives the process. INVARIANT: `#content` is leased while it is set.
 */
export class OpenFile {
  readonly ino: Inode;
  readonly progress = new ReadProgress();
  /** Orders changes of the file behind a write that the thread pool executes. */
  readonly changes = new OrderedChanges();
  readonly #deps: OpenFileDeps;

  #content: ContentId | null = null;
  #lease: Lease | null = null;
  #unflushed: { mtime: Timespec; ctime: Timespec } | null = null;
  #writing: Writing | null = null;
  #pinning: Promise<void> | null = null;
  #isClosed = false;
  /**
   * How much longer the pinned version is than the size that the kernel has. The kernel asks again at open(2), not for a file that is
   * already open. Needed only where a write does not say whether it appends.
   */
  #unreportedBytes = 0;
  /** The replaced version that the open handles were given and keep reading; null while they have the newest. */
  #kept: FileBytes | null = null;
  /** The node of a file that was unlinked while open: it is no longer stored or pushed. */
  #orphan: NodeRecord | null = null;

  constructor(deps: OpenFileDeps, ino: Inode) {
    this.#deps = deps;
    this.ino = ino;
  }

  /** Size and times that were not flushed yet; null if the node's record is up to date. */
  get unflushed(): UnflushedAttributes | null {
    if (this.#unflushed === null || this.#content === null) return null;
    // Handles opened on another version (`OpenFiles`) have created the next draft over this one; it holds the newer attributes.
    if (this.#orphan === null && this.#node()?.local?.content !== this.#content) return null;
    return { sizeBytes: this.#deps.contents.sizeOf(this.#content), ...this.#unflushed };
  }

  /** Null while it was only read. */
  get writing(): Writing | null {
    return this.#writing;
  }

  /** Truncated to zero and not written since: the start of a save, or all of it. */
  get isJustEmptied(): boolean {
    return isJustEmptied(this.#writing);
  }

  /** Whether a version or draft is held: an upload elsewhere does not change the bytes that are read from now on. */
  get isPinned(): boolean {
    return this.#content !== null;
  }

  /** Settles when the running request for the newest version is answered; null if there is none. */
  get pinning(): Promise<void> | null {
    return this.#pinning;
  }

  get sizeBytes(): number {
    if (this.#content !== null) return this.#deps.contents.sizeOf(this.#content);
    return (this.#kept ?? this.#node()?.local)?.sizeBytes ?? 0;
  }

  /** The content of reads and writes; null before the first access. */
  get content(): ContentId | null {
    return this.#content;
  }

  /** The file has no name, any more or yet: only the handles hold its content. `older`: they keep another version than the newest. */
  orphan(node: NodeRecord, bytes: 'latest' | 'older' = 'latest'): void {
    this.#orphan = node;
    if (bytes === 'latest') this.#holdLatest(node.local?.content ?? null);
  }

  /** A file without a name got its first one; its record includes every write so far. */
  named(): void {
    this.#orphan = null;
    this.#unflushed = null;
  }

  /**
   * `was` was replaced, and no handle has written: the open handles keep reading `was`. The kernel has its length for them; it would
   * truncate a longer version to that and fill up a shorter one with zeros (fuse_short_read).
   */
  keep(was: FileBytes): void {
    if (this.#content === null && was.content !== null) this.#hold(was.content);
    this.#kept = was;
  }

  /** The kept version is of no more use to the open handles: they read `newest` from now on. */
  follow(newest: FileBytes): void {
    this.#letGo();
    this.progress.restart();
    this.keep(newest);
  }

  /** The content `is` replaces `was` with the same bytes: the next draft has it as its base. null: nothing was read by this process. */
  goOnOver(was: ContentId | null, is: ContentId): void {
    if (this.#content === was) this.#hold(is);
  }

  /** The replaced version that the open handles keep reading; null: the newest. */
  get kept(): FileBytes | null {
    return this.#kept;
  }

  /**
   * Gives the bytes of `extent`, fewer only at the end of the file, to `take` before any of them can be evicted. A promise only
   * if a request is necessary.
   *
   * @throws FsError ESTALE, ETIMEDOUT, EIO (BlockReader.read)
   */
  read<T>(extent: Extent, caller: Caller, take: (pieces: readonly PresentPiece[]) => T): T | Promise<T> {
    const pinned = this.#pin(caller, extent);
    if (pinned instanceof Promise) return pinned.then(() => this.#readPinned(extent, caller, take));
    return this.#readPinned(extent, caller, take);
  }

  /**
   * Copies `data` in. A promise only when the base is not known yet, or while the system makes writers wait for its disk.
   *
   * @param place `end`: `offset` is where the kernel takes the end of the file to be
   */
  write(offset: number, data: Uint8Array, caller: Caller, place: ContentPlace = 'offset'): void | Promise<void> {
    if (place !== 'offset') this.#turnToNewest(offset, place);
    // The kernel's buffer is only ours until the answer, and the answer waits for this promise.
    return this.#change(caller, () => this.#writePinned(offset, data, place, caller));
  }

  /** Sets the length. A promise only when the base is not known yet and some of it stays. */
  truncate(sizeBytes: number, caller: Caller): void | Promise<void> {
    if (sizeBytes === 0) {
      this.#leaveGivenUp();
      return this.changes.run(() => this.#truncatePinned(0));
    }
    return this.#change(caller, () => this.#truncatePinned(sizeBytes));
  }

  /** Makes a range read as zeros without changing the length (punch hole, zero range). */
  zero(extent: Extent, caller: Caller): void | Promise<void> {
    return this.#change(caller, () => {
      const draft = this.#draft();
      const end = Math.min(extent.end, this.#deps.contents.sizeOf(draft));
      if (extent.start < end) this.#deps.contents.zero(draft, { start: extent.start, end });
      this.#touch();
    });
  }

  /** SEEK_DATA, SEEK_HOLE over what is known; bytes that were never fetched count as data. */
  async seek(offset: number, whence: 'data' | 'hole', caller: Caller): Promise<number> {
    await this.#pin(caller, { start: offset, end: offset });
    const sizeBytes = this.sizeBytes;
    if (offset < 0 || offset >= sizeBytes) throw new FsError('ENXIO');
    if (this.#content === null) return whence === 'data' ? offset : sizeBytes;
    return seekIn(this.#deps.contents, this.#content, offset, whence);
  }

  /**
   * close(2): from here on the bytes survive the death of this process.
   *
   * @param attributes set at the same moment: they win over what the writing made of them, in the same record
   * @returns whether `attributes` were written
   * @throws StorageError full: the bytes cannot be stored; close(2) reports it to the process
   */
  flush(attributes: Partial<Omit<LocalFacet, 'parent' | 'name'>> = {}): boolean {
    const { store, contents } = this.#deps;
    const draft = this.#content;
    if (this.#orphan !== null && this.#unflushed !== null) {
      // Never written down; what fstat(2) shows has to follow all the same.
      const { mtime, ctime } = this.#unflushed;
      this.#unflushed = { mtime: attributes.mtime ?? mtime, ctime: attributes.ctime ?? ctime };
    }
    if (draft === null || this.#orphan !== null) return false;
    const times = this.#unflushed;
    if (times === null && !contents.isUnflushed(draft)) return false;
    const isShown = store.transact((tx) => {
      contents.flush(tx, draft);
      const node = tx.get('node', this.ino);
      if (node?.local == null || node.local.content !== draft) return false;
      const local: LocalFacet = { ...writtenAt(node.local, times), sizeBytes: contents.sizeOf(draft), ...attributes };
      writeNode(tx, node, { ...node, local }, this.#deps.clock.nowMs());
      return true;
    });
    this.#unflushed = null;
    this.#deps.onWritten(this.ino);
    return isShown;
  }

  /** close(2) of a writer: its content is complete, also after a truncation to zero. */
  closedByWriter(): void {
    if (this.#writing !== null) this.#writing = { ...this.#writing, wasEmptied: false };
  }

  /** fsync(2): the bytes survive a power cut, also those of a file without a name, which linkat(2) may name later. */
  async sync(): Promise<void> {
    this.flush();
    if (this.#writing !== null) this.#writing = { ...this.#writing, syncedMs: this.#deps.clock.elapsedMs() };
    // A handle without accesses syncs the writes of earlier handles.
    const content = this.#content ?? this.#node()?.local?.content ?? null;
    if (content !== null) await this.#deps.contents.syncFile(content);
    await this.#deps.store.sync();
  }

  /** No handle is left. Writes that could not be stored are lost: close(2) has reported that to the process. */
  close(): void {
    const content = this.#content;
    this.#isClosed = true;
    this.#letGo();
    if (content === null || !this.#deps.contents.putDown(content) || this.#orphan !== null) return;
    this.#deps.log.warn(
      { ino: this.ino },
      'writes could not be stored and are lost: the file is as it was at its last close',
    );
    this.#deps.onOtherBytes(this.ino);
  }

  #node(): NodeRecord | undefined {
    return this.#orphan ?? this.#deps.store.get('node', this.ino);
  }

  #readPinned<T>(extent: Extent, caller: Caller, take: (pieces: readonly PresentPiece[]) => T): T | Promise<T> {
    if (this.#content === null) return take([]); // never filled on the service: an empty file
    const end = Math.min(extent.end, this.#deps.contents.sizeOf(this.#content));
    if (extent.start >= end) return take([]);
    return this.#deps.reader.read(this.#content, { start: extent.start, end }, caller, take);
  }

  /** Changes the file once its base is known. */
  #change(caller: Caller, act: () => void | Promise<void>): void | Promise<void> {
    this.#leaveGivenUp();
    const pinned = this.#pin(caller, null);
    return pinned === undefined ? this.changes.run(act) : pinned.then(() => this.changes.run(act));
  }

  #writePinned(offset: number, data: Uint8Array, place: ContentPlace, caller: Caller): void | Promise<void> {
    const draft = this.#draft();
    const end = this.#deps.contents.sizeOf(draft);
    // An append at the end of the listed size, to a version of another size, never goes into its middle.
    const isAtEnd = place === 'end' || (place === 'end-or-offset' && offset + this.#unreportedBytes === end);
    if (place === 'end' && caller.appends?.(draft) === false) return this.#touch();
    const write = () => this.#deps.contents.writeAtPace(draft, isAtEnd ? end : offset, data);
    const written = place === 'end' ? noteFailure(write, () => caller.appendFailed?.(draft)) : write();
    if (written !== undefined) return written.then(() => this.#touch());
    this.#touch();
  }

  #truncatePinned(sizeBytes: number): void {
    // The truncated content may be racily clean without revalidation. It stays the base all the same, to return to until the next close.
    if (this.#content === null) this.#holdLatest(this.#node()?.local?.content ?? null);
    const draft = this.#draft(sizeBytes);
    if (this.#deps.contents.sizeOf(draft) !== sizeBytes) this.#deps.contents.truncate(draft, sizeBytes);
    this.#touch(sizeBytes === 0);
  }

  #touch(isEmptied = false): void {
    const now = timespecOfMs(this.#deps.clock.nowMs());
    this.#unflushed = { mtime: now, ctime: now };
    this.#writing = changedAt(this.#writing, this.#deps.clock.elapsedMs(), isEmptied);
    const { unflushed } = this.#deps.contents;
    if (!unflushed.isRecorded || this.#content === null) return;
    const { wasEmptied } = this.#writing;
    const state = { mtime: now, ctime: now, wasEmptied, isJustEmptied: isJustEmptied(this.#writing) };
    if (!unflushed.keep(this.#content, this.ino, state)) this.#deps.onUnkept?.(this);
  }

  /** Continues with the draft that an earlier process changed. */
  resume(content: ContentId, state: WritingState): void {
    this.#hold(content);
    this.#unflushed = { mtime: state.mtime, ctime: state.ctime };
    this.#writing = resumedAt(state, this.#deps.clock.elapsedMs());
  }

  /**
   * Appends go to the end of the newest known version. The open handles release an older one that they read, or that was pushed from their
   * writes: an append to it, at the newest one's length, would leave a gap of zeros or land in the middle.
   */
  #turnToNewest(offset: number, place: 'end' | 'end-or-offset'): void {
    const { contents, onOtherBytes } = this.#deps;
    const held = this.#content;
    const newest = this.#orphan === null ? this.#node()?.local : null;
    if (held === null || newest == null || newest.content === held) return;
    // A draft is the newest, or becomes a version beside the remote one.
    const isDraft = newest.content !== null && contents.record(newest.content)?.kind === 'draft';
    if (isDraft || contents.record(held)?.sealed === false) return;
    const isEnd = place === 'end' || offset === newest.sizeBytes || offset >= contents.sizeOf(held);
    if (!isEnd) return;
    this.#unreportedBytes = newest.sizeBytes - offset;
    this.#letGo();
    onOtherBytes(this.ino);
  }

  /** An open draft that no record refers to was discarded (`cfs discard`): further writes to it would be lost. */
  #leaveGivenUp(): void {
    const { contents } = this.#deps;
    const held = this.#content;
    // No record refers to an orphan's draft, and a write in the thread pool needs its draft.
    if (held === null || this.#orphan !== null || this.changes.underWay !== null) return;
    const local = this.#node()?.local;
    if (local == null || local.content === held) return;
    const record = contents.record(held);
    if (record === undefined || record.sealed || record.refs > 0) return;
    this.#letGo();
    this.#unflushed = null;
    contents.putDown(held);
  }

  #letGo(): void {
    this.#lease?.release();
    this.#lease = null;
    this.#content = null;
  }

  /** Holds the content that the node names already; no request. */
  #pinKnown(): void {
    if (this.#kept !== null) return;
    // An orphan's record dates from the unlink: the held content is newer.
    if (this.#orphan !== null && this.#content !== null) return;
    const node = this.#node();
    if (this.#content === null && node !== undefined && isSuspect(node)) return;
    this.#holdLatest(node?.local?.content ?? null);
  }

  /** Holds a local draft, or a version if none is held. A version that is held already stays. */
  #holdLatest(current: ContentId | null): void {
    if (current !== null && (this.#content === null || this.#deps.contents.record(current)?.kind === 'draft'))
      this.#hold(current);
  }

  #needsPin(): boolean {
    this.#pinKnown();
    if (this.#content !== null) return false;
    if (this.#kept !== null) return this.#kept.sizeBytes > 0;
    const { local = null, remote = null } = this.#node() ?? {};
    return local !== null && (remote?.sizeBytes ?? 0) > 0;
  }

  /** One request for all waiting callers; the first one may be cancelled. @param toRead the bytes that are read next; null to write */
  #pin(caller: Caller, toRead: Extent | null): void | Promise<void> {
    if (!this.#needsPin()) return;
    this.#pinning ??= withEarlyBytes(this.#deps, this.#kept === null ? this.#node() : undefined, toRead, async () => {
      await this.#askForVersion(toRead === null ? 'write' : 'read');
      return this.#content;
    }).finally(() => {
      this.#pinning = null;
    });
    return unlessAborted(this.#pinning, caller.signal);
  }

  async #askForVersion(purpose: 'read' | 'write'): Promise<void> {
    const { store, contents, source, retry, clock, openWaitMs } = this.#deps;
    const asked = this.#node();
    const resource = asked?.remote?.resource;
    if (this.#kept !== null) return this.#askForKept(resource, this.#kept);
    if (asked === undefined || resource === undefined) return;
    const newest = (signal: AbortSignal) => source.newestVersion(resource, signal);
    // Revalidation is bounded by `--open-wait`.
    const version = await (isSuspect(asked) ? retry.askBriefly(newest, openWaitMs) : retry.ask(newest));
    if (version === null && isSuspect(asked)) return this.#holdLatest(this.#node()?.local?.content ?? null);
    if (version === null) {
      if ((this.#node()?.remote?.sizeBytes ?? 0) > 0)
        throw new FsError('ESTALE', 'the service no longer has this file');
      return;
    }
    const askedSizeBytes = asked?.local?.sizeBytes ?? 0;
    if (purpose === 'read' && askedSizeBytes !== version.sizeBytes) {
      const older = await retry.ask((signal) => source.versionOfLength(resource, askedSizeBytes, signal));
      if (older !== null && this.#holdOlder(older, resource)) return;
    }
    const { content, other } = recordNewest({ store, contents, clock }, { asked, resource, version });
    if (other !== null && asked.local !== null) {
      this.#unreportedBytes += other.longerBytes;
      this.#deps.onRepinned(this.ino, asked.local);
    }
    // The kernel accepts no other length for open handles: a version of another length is not theirs.
    if (this.#kept !== null && this.#content === null) throw new FsError('ESTALE', NO_LONGER_KEPT);
    if (this.#isClosed) return;
    // Held even if the node has another content by now: the open handles read the version of their open(2).
    if (this.#content === null) this.#hold(content);
    this.#pinKnown();
  }

  /** The bytes of a version that was replaced before any of them was read. @throws FsError ESTALE the service has dropped them */
  async #askForKept(resource: ResourceUrl | undefined, { sizeBytes }: FileBytes): Promise<void> {
    const { source, retry } = this.#deps;
    const version =
      resource === undefined ? null : await retry.ask((signal) => source.versionOfLength(resource, sizeBytes, signal));
    if (version === null || resource === undefined || !this.#holdOlder(version, resource))
      throw new FsError('ESTALE', NO_LONGER_KEPT);
  }

  /**
   * Holds an older version whose length the kernel has for this open: it truncates a longer one to that length and fills up a
   * shorter one with zeros (fuse_short_read). A later open(2) waits for a listing first.
   *
   * @returns whether a content is held; false if the file was closed during the request
   */
  #holdOlder({ url, sizeBytes }: RemoteVersion, resource: ResourceUrl): boolean {
    const { store, contents } = this.#deps;
    this.#pinKnown();
    if (this.#content !== null) return true;
    if (this.#isClosed) return false;
    const content = store.transact((tx) => {
      const id = contents.versionContent(tx, url, resource, sizeBytes);
      // Only the lease keeps it from collection.
      if (tx.get('content', id)?.refs === 0) tx.put('garbage', id, true);
      // The listing showed another version: list the folder again.
      const folder = this.#kept === null ? this.#node()?.remote?.parent : undefined;
      if (folder !== undefined && tx.get('folder', folder) !== undefined) tx.put('folder', folder, { listedMs: 0 });
      return id;
    }, 'learnt');
    this.#hold(content);
    return true;
  }

  /** The open draft to be changed: the present one, or a new one over the held content. `keepBytes`: how much of the base stays. */
  #draft(keepBytes = Number.MAX_SAFE_INTEGER): ContentId {
    const { store, contents } = this.#deps;
    this.#pinKnown();
    if (this.#content !== null) {
      const record = contents.record(this.#content);
      const isOpenDraft = record?.kind === 'draft' && !record.sealed;
      // Truncated to be rewritten: the content of the last close stays unchanged as the base until the next one.
      const isToStay = keepBytes === 0 && !contents.isUnflushed(this.#content) && contents.sizeOf(this.#content) > 0;
      if (isOpenDraft && !isToStay) return this.#content;
    }
    const baseContent = this.#content;
    const baseBytes = baseContent === null ? 0 : contents.sizeOf(baseContent);
    const base = baseContent === null || baseBytes === 0 ? null : { content: baseContent, sizeBytes: baseBytes };
    const draft = store.transact((tx) => {
      if (baseContent !== null && contents.record(baseContent)?.sealed === false) contents.seal(tx, baseContent);
      const id = contents.createDraft(tx, base);
      const node = tx.get('node', this.ino);
      if (node?.local != null && this.#orphan === null) {
        const local: LocalFacet = { ...node.local, content: id, sizeBytes: baseBytes };
        const isOlder = baseContent !== null && baseContent !== node.local.content && !isContentDirty(node);
        const remote = isOlder && node.remote !== null ? madeOver(node.remote, baseContent, tx) : node.remote;
        writeNode(tx, node, { ...node, local, remote }, this.#deps.clock.nowMs());
      } else {
        tx.put('garbage', id, true);
      }
      return id;
    });
    this.#hold(draft);
    // The service keeps few old versions: without its base this file could not be completed.
    if (baseContent !== null && baseBytes > 0 && keepBytes > 0) {
      void this.#deps.reader.completeBehind(baseContent, { start: 0, end: baseBytes }, this.#deps.shutdown);
    }
    return draft;
  }

  #hold(content: ContentId): void {
    if (this.#content === content) return;
    const lease = this.#deps.contents.lease(content, 'changing');
    this.#lease?.release();
    this.#lease = lease;
    this.#content = content;
    this.#deps.onHeld?.(this, content);
  }
}
