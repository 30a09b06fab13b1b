import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { ProtocolError, StorageError, systemCodeOf } from '../base/errors.ts';
import type { FetchedRange, FetchTarget, WrittenExtent } from '../base/resources.ts';
import { BLOCK_BYTES, type Extent } from '../base/vocabulary.ts';
import { ArrivingMarks } from './arriving-marks.ts';

/** Collected before a write begins: smaller ones are many system calls, and many errands of another thread. */
const WRITE_BYTES_MIN = 256 * 1024;
/** Collected while the write before is still under way; then reading waits for it. Bounds the memory: twice this each. */
const WRITE_BYTES_MAX = 1536 * 1024;
/** A service that ignores Range sends everything; so much of it is kept in memory, beyond it only what was asked for. */
const MEMORY_BYTES_MAX = 4 * 1024 * 1024;

export interface Incoming {
  readonly extent: Extent;
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Hears of each chunk whose bytes have landed: its memory may be filled again. */
  takeBack?(chunk: Uint8Array): void;
  /** Ends the chunks, also while the next is waited for: nobody can take them any more. */
  giveUp?(): void;
}

/** Where bytes come from. */
export interface Supply {
  /**
   * Into the file at their own offsets without passing through here, as far as that goes. `landed` does not throw.
   * @returns up to where they are there; nothing is written any more
   */
  bring?(fd: number, landed: (at: number, marks: readonly number[]) => void): Promise<number>;
  /** @param start the rest from here on; what comes may be more */
  ask(start: number): Promise<Incoming>;
}

/**
 * Asks for bytes and puts them where they belong. Into a file: at their own offsets, written when this resolves (not synced).
 * `arrived` hears of bytes, `written` of what of the extent is in the file, from its start on, with marks. The file is opened first: an
 * answer that nobody reads would hold its connection.
 *
 * @throws StorageError where the file cannot take them, `full` for a full disk · what the chunks throw
 */
export async function land(
  supply: Supply,
  asked: Extent,
  target: FetchTarget,
  arrived: (bytes: number) => void,
  written: (there: WrittenExtent) => void,
): Promise<FetchedRange> {
  if (target.kind === 'memory') return await landInMemory(await supply.ask(asked.start), asked, arrived);
  const file = await asStorageError(target.path, () =>
    open(target.path, constants.O_WRONLY | constants.O_CREAT, 0o600),
  );
  try {
    const brought = await bringIntoFile(supply, asked, file, arrived, written);
    if (brought === asked.end) return { extent: asked, bytes: null };
    const incoming = await supply.ask(brought);
    const { start, end } = incoming.extent;
    const extent = { start: start === brought ? asked.start : start, end };
    await landInFile(incoming, extent.start, file, target.path, arrived, written);
    return { extent, bytes: null };
  } finally {
    await file.close();
  }
}

async function landInMemory(
  { extent, chunks, takeBack }: Incoming,
  asked: Extent,
  arrived: (bytes: number) => void,
): Promise<FetchedRange> {
  const kept = extent.end - extent.start <= MEMORY_BYTES_MAX ? extent : asked;
  const bytes = new Uint8Array(kept.end - kept.start);
  let at = extent.start;
  for await (const chunk of chunks) {
    const from = Math.max(0, kept.start - at);
    const until = Math.min(chunk.byteLength, kept.end - at);
    if (from < until) bytes.set(chunk.subarray(from, until), at + from - kept.start);
    at += chunk.byteLength;
    arrived(chunk.byteLength);
    takeBack?.(chunk);
    if (at >= kept.end) break;
  }
  if (at < kept.end) throw new ProtocolError(`${kept.end - at} bytes are missing`);
  return { extent: kept, bytes };
}

/** @returns up to where bytes are in the file now */
async function bringIntoFile(
  supply: Supply,
  { start }: Extent,
  file: FileHandle,
  arrived: (bytes: number) => void,
  written: (there: WrittenExtent) => void,
): Promise<number> {
  let before = start;
  let first = Math.ceil(start / BLOCK_BYTES);
  // Kept until nothing is written any more: who tells of what landed has nobody to throw at.
  let failure: unknown = null;
  const landed = (at: number, marks: readonly number[]): void => {
    try {
      arrived(at - before);
      before = at;
      written({ start, end: at, marks: { first, marks } });
      first += marks.length;
    } catch (error) {
      failure ??= error;
    }
  };
  const brought = (await supply.bring?.(file.fd, landed)) ?? start;
  if (failure !== null) throw failure;
  return brought;
}

/** @param start where what is there begins, when the extent follows it */
async function landInFile(
  { extent, chunks, takeBack, giveUp }: Incoming,
  start: number,
  file: FileHandle,
  path: string,
  arrived: (bytes: number) => void,
  written: (there: WrittenExtent) => void,
): Promise<void> {
  let at = extent.start;
  const marking = new ArrivingMarks(extent.start);
  let batch: Uint8Array[] = [];
  let batchBytes = 0;
  // One batch is written while the next arrives, which a service that hangs may never send: the failure of a write ends that.
  let writing: Promise<void> | null = null;
  let failure: unknown = null;
  const write = () => {
    const [buffers, position] = [batch, at];
    at += batchBytes;
    batch = [];
    batchBytes = 0;
    const end = at;
    if (end === extent.end) marking.end();
    const marks = marking.take();
    writing = asStorageError(path, () => writeAll(file, buffers, position))
      .then(() => {
        for (const buffer of buffers) takeBack?.(buffer);
        written({ start, end, marks });
      })
      .catch((error: unknown) => {
        failure = error;
        giveUp?.();
      })
      .finally(() => {
        writing = null;
      });
  };
  try {
    for await (const chunk of chunks) {
      if (failure !== null) break;
      batch.push(chunk);
      marking.add(chunk);
      batchBytes += chunk.byteLength;
      arrived(chunk.byteLength);
      if (batchBytes >= WRITE_BYTES_MAX) await writing;
      // Written as soon as the one before is: what has gathered meanwhile makes up for a slow disk or a busy machine.
      if (writing === null && batchBytes >= WRITE_BYTES_MIN) write();
    }
    await writing;
    if (batchBytes > 0 && failure === null) write();
  } catch (error) {
    failure ??= error;
  } finally {
    // Also after a failure of the chunks: the file must not be closed under a write.
    await writing;
  }
  if (failure !== null) throw failure;
  if (at !== extent.end) throw new ProtocolError(`${extent.end - at} bytes are missing`);
}

async function writeAll(file: FileHandle, buffers: Uint8Array[], position: number): Promise<void> {
  let at = position;
  let left = buffers;
  while (left.length > 0) {
    const { bytesWritten } = await file.writev(left, at);
    at += bytesWritten;
    left = after(left, bytesWritten);
  }
}

/** What is left of `buffers` after their first `bytes` bytes: a write may take less than it was given. */
function after(buffers: Uint8Array[], bytes: number): Uint8Array[] {
  let skip = bytes;
  const first = buffers.findIndex((buffer) => {
    if (skip < buffer.byteLength) return true;
    skip -= buffer.byteLength;
    return false;
  });
  if (first === -1) return [];
  return [(buffers[first] as Uint8Array).subarray(skip), ...buffers.slice(first + 1)];
}

async function asStorageError<T>(path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const code = systemCodeOf(error);
    const full = code === 'ENOSPC' || code === 'EDQUOT';
    throw new StorageError(`${path}: cannot be written`, { full, cause: error });
  }
}
