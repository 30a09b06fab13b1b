import { setMaxListeners } from 'node:events';
import { FsError } from '../base/errors.ts';
import type { Extent, Inode } from '../base/vocabulary.ts';
import type { BlockReader } from '../content/block-reader.ts';
import type { OpenFile } from '../content/open-file.ts';
import { ReadAhead } from '../content/read-ahead.ts';
import type { AllocateMode, Answer, OpContext, OpenFlags, ReadReply, WritePlace } from '../kernel/binding.ts';
import type { Contents } from '../store/contents.ts';
import { after } from './answer.ts';
import type { NodeView } from './node-view.ts';
import type { OpenFiles } from './open-files.ts';
import { replyOf } from './read-reply.ts';
import { dropPrivilege } from './set-id-bits.ts';

/** The largest file: what the kernel's page cache can address, and exact in a double. */
export const FILE_BYTES_MAX = Number.MAX_SAFE_INTEGER;

/** One open(2) of a file, from its answer to its last close: what it may do, and what is fetched ahead of what it reads. */
export class FileHandle {
  readonly kind = 'file';
  /** Shared with the other handles of the inode. */
  readonly file: OpenFile;
  readonly #deps: FileHandleDeps;
  readonly #flags: OpenFlags;
  readonly #readAhead: ReadAhead;
  /** Whether what is in the file is this writer's, and perhaps half of it, until it closes it. */
  #hasChanged = false;
  /** Ends what is being fetched ahead for this handle and nobody waits for; null while there is nothing. */
  #fetchingAhead: AbortController | null = null;
  /** A descriptor of it was closed before anything was written behind the emptying. */
  #isClosedEmpty = false;

  constructor(deps: FileHandleDeps, ino: Inode, flags: OpenFlags) {
    this.#deps = deps;
    this.#flags = flags;
    this.#readAhead = new ReadAhead(deps.prefetcher.windowBytesMax);
    this.file = deps.files.acquire(ino, this.#use);
  }

  /** @throws FsError EBADF where it was opened to write only · what `OpenFile.read` throws */
  read(offset: number, length: number, ctx: OpContext): Answer<ReadReply> {
    const { file } = this;
    if (this.#flags.access === 'write') throw new FsError('EBADF');
    const extent = { start: offset, end: Math.min(offset + length, FILE_BYTES_MAX) };
    const reply = file.read(extent, ctx, (pieces) => replyOf(pieces, this.#deps.contents));
    // Asked for ahead at once, beside what is waited for, not after it.
    this.#fetchAhead(extent, reply instanceof Promise);
    file.progress.noted(this, extent.end, file.sizeBytes);
    return reply;
  }

  /** @throws FsError EBADF, EFBIG */
  write(offset: number, data: Uint8Array, ctx: OpContext, place?: WritePlace): Answer<number> {
    if (this.#flags.access === 'read') throw new FsError('EBADF');
    if (offset + data.byteLength > FILE_BYTES_MAX) throw new FsError('EFBIG');
    this.changes();
    // What a shared mapping wrote comes through any handle that is open for writing, at its own place (test/model found it appended):
    // where the binding cannot tell, O_APPEND says little.
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
      // Blocks are not reserved: the store refuses at write and close instead, never later.
      if (mode !== 'keep-size' && mode !== 'punch-hole' && mode !== 'zero-range-keep-size' && end > file.sizeBytes) {
        return file.truncate(end, ctx);
      }
    };
    if (mode === 'allocate' || mode === 'keep-size') return grow();
    return after(file.zero({ start: offset, end }, ctx), grow);
  }

  /**
   * close(2), once for every descriptor that shares the handle. After it the bytes survive the death of this process; the
   * service is not waited for. The last moment at which a failure reaches the process that wrote.
   *
   * What was only emptied so far stays what it was until `close`: a shell that runs `program > file` moves its descriptor to 1 and closes the
   * one it had (dup2(2)) before the program has written a byte.
   */
  flush(): void {
    if (this.#flags.access === 'read') return;
    this.#isClosedEmpty = this.file.isJustEmptied;
    if (this.#isClosedEmpty) return;
    this.file.flush();
    this.file.closedByWriter();
  }

  /** The file is changed through this handle, or was made or emptied for it. */
  changes(): void {
    if (this.#hasChanged || this.#use === 'read') return;
    this.#hasChanged = true;
    this.#deps.files.addChanger(this.file);
  }

  /**
   * The last descriptor and mapping are gone: to be called once, nothing else after it. A promise while the pool has a write of this file at
   * hand (who was killed in the middle of it closes before it is done): in use until then, so that whoever writes next comes after it.
   */
  close(): Answer<void> {
    this.#stopFetchingAhead();
    this.file.progress.left(this);
    // Asked once: what others go on to write has handles of its own.
    const underWay = this.#use === 'write' ? this.file.changes.underWay : null;
    if (underWay !== null) return underWay.then(() => this.#letGo());
    this.#letGo();
  }

  /**
   * Whether every close(2) of it was heard, when nothing more is: what was written since the latest goes back to that, it may be half of
   * something.
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
      if (this.#use === 'write') {
        if (file.isJustEmptied) file.closedByWriter();
        // What a shared mapping wrote after the last close(2) arrives between flush and release.
        file.flush();
      }
    } finally {
      if (this.#hasChanged) files.removeChanger(file);
      files.release(file, this.#use);
      // What was deleted while it was open, also by those who only read, is deleted on the service when nobody has it open any more.
      if (this.#use === 'write' || view.isNameless(file.ino)) onWritten(file.ino);
    }
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
    // Which version it is may be asked just now: then as soon as that is known, beside what the reader waits for.
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

/** The same for all handles. */
export interface FileHandleDeps {
  readonly files: OpenFiles;
  readonly view: Pick<NodeView, 'local' | 'change' | 'isNameless'>;
  readonly contents: Contents;
  readonly prefetcher: Pick<BlockReader, 'prefetch' | 'paceBytes' | 'windowBytesMax'>;
  /** Somebody closed the file who may have written, or kept it from being deleted there: it may be pushed. */
  readonly onWritten: (ino: Inode) => void;
}
