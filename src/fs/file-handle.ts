import { setMaxListeners } from 'node:events';
import { FsError } from '../base/errors.ts';
import type { Extent, Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { BlockReader } from '../content/block-reader.ts';
import type { OpenFile } from '../content/open-file.ts';
import { ReadAhead } from '../content/read-ahead.ts';
import type { AllocateMode, Answer, OpContext, OpenFlags, ReadReply, WritePlace } from '../kernel/binding.ts';
import { after } from './answer-chain.ts';
import type { NodeView } from './node-view.ts';
import type { OpenFiles } from './open-files.ts';
import { replyOf } from './read-reply.ts';
import { dropPrivilege } from './set-id-bits.ts';

/** The largest file: sizes and offsets are exact in a double. */
export const FILE_BYTES_MAX = Number.MAX_SAFE_INTEGER;

/** One open(2) of a file, from its reply to the last close: its access mode and its read-ahead. */
export class FileHandle {
  readonly kind = 'file';
  /** Shared with the other handles of the inode. */
  readonly file: OpenFile;
  readonly #deps: FileHandleDeps;
  readonly #flags: OpenFlags;
  readonly #readAhead: ReadAhead;
  /** Called before the first change through this handle. */
  onChange: (() => void) | null = null;
  /** This writer has changed the file: until it closes, the file may be incomplete. */
  #hasChanged = false;
  /** Aborts the read-ahead of this handle; null while there is none. */
  #fetchingAhead: AbortController | null = null;
  /** A descriptor of it was closed after the truncation and before any write. */
  #isClosedEmpty = false;

  /** @param file of a handle that an earlier process opened; otherwise the current file of the inode */
  constructor(deps: FileHandleDeps, ino: Inode, flags: OpenFlags, file: OpenFile | null = null) {
    this.#deps = deps;
    this.#flags = flags;
    this.#readAhead = new ReadAhead(deps.prefetcher.windowBytesMax);
    this.file = file ?? deps.files.acquire(ino, this.#use);
  }

  /** @throws FsError EBADF for a write-only handle · what `OpenFile.read` throws */
  read(offset: number, length: number, ctx: OpContext): Answer<ReadReply> {
    const { file } = this;
    if (this.#flags.access === 'write') throw new FsError('EBADF');
    const extent = { start: offset, end: Math.min(offset + length, FILE_BYTES_MAX) };
    const reply = file.read(extent, ctx, (pieces) => replyOf(pieces, this.#deps.contents));
    // Start the read-ahead beside the read, not after it.
    this.#fetchAhead(extent, reply instanceof Promise);
    file.progress.noted(this, extent.end, file.sizeBytes);
    return reply;
  }

  /** @throws FsError EBADF, EFBIG */
  write(offset: number, data: Uint8Array, ctx: OpContext, place?: WritePlace): Answer<number> {
    if (this.#flags.access === 'read') throw new FsError('EBADF');
    if (offset + data.byteLength > FILE_BYTES_MAX) throw new FsError('EFBIG');
    this.changes();
    // A write of a shared mapping comes through any writable handle, at its own offset, and must not be appended (test/model). Where the
    // binding cannot distinguish it, O_APPEND is no proof.
    const where = place ?? (this.#flags.append ? 'end-or-offset' : 'offset');
    return after(this.file.write(offset, data, ctx, where), () => {
      dropPrivilege(this.#deps.view, this.file.ino, ctx);
      return data.byteLength;
    });
  }

  /** @throws FsError EBADF, EFBIG */
  allocate(mode: AllocateMode, offset: number, length: number, ctx: OpContext): Answer<void> {
    const { file } = this;
    if (this.#flags.access === 'read') throw new FsError('EBADF');
    const end = offset + length;
    if (end > FILE_BYTES_MAX) throw new FsError('EFBIG');
    this.changes();
    const grow = (): Answer<void> => {
      dropPrivilege(this.#deps.view, file.ino, ctx);
      // Blocks are not reserved: a full disk is reported at write and close, never later.
      if (mode !== 'keep-size' && mode !== 'punch-hole' && mode !== 'zero-range-keep-size' && end > file.sizeBytes) {
        return file.truncate(end, ctx);
      }
    };
    if (mode === 'allocate' || mode === 'keep-size') return grow();
    return after(file.zero({ start: offset, end }, ctx), grow);
  }

  /**
   * close(2), once for every descriptor that shares the handle. When it returns, the bytes survive the death of this process, without
   * waiting for the service. It is the last chance to report a failure to the writer.
   *
   * A file that was only truncated keeps its old content until `close`. For `program > file` a shell moves its descriptor to 1 (dup2(2)) and
   * closes the original before the program has written a byte.
   */
  flush(): void {
    if (this.#flags.access === 'read' || this.#isBystander) return;
    this.#isClosedEmpty = this.file.isJustEmptied;
    if (this.#isClosedEmpty) return;
    this.file.flush();
    this.file.closedByWriter();
  }

  /** `OpenFlags.raw` of the open(2). */
  get rawFlags(): number {
    return this.#flags.raw;
  }

  get hasChanged(): boolean {
    return this.#hasChanged;
  }

  /** The file is changed through this handle, or was created or emptied for it. */
  changes(): void {
    if (this.#use === 'read') return;
    if (this.#hasChanged) return;
    this.#hasChanged = true;
    this.onChange?.();
    this.#deps.files.addChanger(this.file);
  }

  /**
   * The last descriptor and mapping are closed: call once, and nothing after it. Returns a promise while a write of this file is running (a
   * killed writer closes before its write ends): the handle stays in use until then, so that the next writer comes after it.
   */
  close(): Answer<void> {
    this.#stopFetchingAhead();
    this.file.progress.left(this);
    // Checked once: later writes of others belong to their own handles.
    const underWay = this.#use === 'write' ? this.file.changes.underWay : null;
    if (underWay !== null) return underWay.then(() => this.#letGo());
    this.#letGo();
  }

  /**
   * Whether a FLUSH arrived for every close(2). Read when the handle gets no more requests. If it is false, the bytes written since the last
   * close are discarded, as they may be incomplete.
   */
  get isWhole(): boolean {
    const { file } = this;
    if (file.changes.underWay !== null) return false;
    return file.unflushed === null || (this.#isClosedEmpty && file.isJustEmptied);
  }

  #letGo(): void {
    const { files, view, onWritten } = this.#deps;
    const { file } = this;
    try {
      if (this.#use === 'write' && !this.#isBystander) {
        if (file.isJustEmptied) file.closedByWriter();
        // Writes of a shared mapping after the last close(2) arrive between flush and release.
        file.flush();
      }
    } finally {
      if (this.#hasChanged) files.removeChanger(file);
      files.release(file, this.#use);
      // A file that was deleted while open, even read-only, is deleted on the service after its last close.
      if (this.#use === 'write' || view.isNameless(file.ino)) onWritten(file.ino);
    }
  }

  /** Another program rewrites the file, and nothing was changed through this handle: closing it does not complete the rewrite. */
  get #isBystander(): boolean {
    return !this.#hasChanged && this.file.writing?.wasEmptied === true;
  }

  get #use(): 'read' | 'write' {
    return this.#flags.access === 'read' ? 'read' : 'write';
  }

  #fetchAhead(extent: Extent, hadToWait: boolean): void {
    const { file } = this;
    const { prefetcher } = this.#deps;
    const wanted = this.#readAhead.afterRead(extent, file.sizeBytes, hadToWait, prefetcher.paceBytes);
    if (wanted === null) this.#stopFetchingAhead();
    if (wanted === null || wanted.length === 0) return;
    this.#fetchingAhead ??= newFetchingAhead();
    const { signal } = this.#fetchingAhead;
    const fetch = (): void => {
      if (file.content !== null) for (const each of wanted) prefetcher.prefetch(file.content, each, signal);
    };
    // While the version is still being pinned, start as soon as it is known, beside the read that waits for it.
    if (file.content !== null) fetch();
    else void file.pinning?.then(fetch, () => {});
  }

  #stopFetchingAhead(): void {
    this.#fetchingAhead?.abort(new DOMException('no longer needed', 'AbortError'));
    this.#fetchingAhead = null;
  }
}

function newFetchingAhead(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal); // one for each request under way
  return controller;
}

/** The dependencies that all handles share. */
export interface FileHandleDeps {
  readonly files: OpenFiles;
  readonly view: Pick<NodeView, 'local' | 'change' | 'isNameless' | 'contentOf'>;
  readonly contents: Contents;
  readonly prefetcher: Pick<BlockReader, 'prefetch' | 'paceBytes' | 'windowBytesMax'>;
  /** A handle that may have written the file, or delayed its deletion on the service, was closed: the file may be pushed. */
  readonly onWritten: (ino: Inode) => void;
}
