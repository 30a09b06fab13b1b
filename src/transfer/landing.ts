import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { asStorageError, ProtocolError } from '../base/errors.ts';
import type { FetchedRange, FetchTarget, WrittenExtent } from '../base/resources.ts';
import { BLOCK_BYTES, type Extent } from '../base/vocabulary.ts';
import { ArrivingChecksums } from './arriving-checksums.ts';

/** Bytes collected before a write begins: smaller writes cost many system calls, and many tasks of another thread. */
const WRITE_BYTES_MIN = 256 * 1024;
/** Bytes collected while the previous write runs; then reading waits for it. Bounds the memory to twice this for each transfer. */
const WRITE_BYTES_MAX = 1536 * 1024;
/** A service that ignores Range sends the whole file. Up to this many bytes of it are kept in memory; beyond it, only the requested ones. */
const MEMORY_BYTES_MAX = 4 * 1024 * 1024;

export interface Incoming {
  readonly extent: Extent;
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Called for each chunk whose bytes are written: its memory may be reused. */
  takeBack?(chunk: Uint8Array): void;
  /** Ends the chunks, also during a wait for the next one: the bytes cannot be used any more. */
  giveUp?(): void;
}

/** A source of bytes. */
export interface Supply {
  /**
   * Writes bytes into the file at their own offsets without passing them through this thread, as far as possible. `landed` does not throw.
   * @returns the end of the written bytes; no write is running afterwards
   */
  bring?(fd: number, landed: (at: number, checksums: readonly number[]) => void): Promise<number>;
  /** @param start offset of the rest; the result may contain more than the rest */
  ask(start: number): Promise<Incoming>;
}

/**
 * Requests bytes and puts them in place: in a file at their own offsets, written when this resolves (not synced). `arrived` reports received
 * bytes; `written` reports the written part of the extent, from its start on, with checksums. The file is opened before the request: an
 * unread response would occupy its connection.
 *
 * @throws StorageError if the file cannot be written, `full` for a full disk · what the chunks throw
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
  return { extent: kept, bytes, isLonger: extent.end - extent.start > asked.end - asked.start };
}

/** @returns the end of the bytes that are in the file */
async function bringIntoFile(
  supply: Supply,
  { start }: Extent,
  file: FileHandle,
  arrived: (bytes: number) => void,
  written: (there: WrittenExtent) => void,
): Promise<number> {
  let before = start;
  let first = Math.ceil(start / BLOCK_BYTES);
  // Kept until no write is running: an error thrown in `landed` has no caller.
  let failure: unknown = null;
  const landed = (at: number, checksums: readonly number[]): void => {
    try {
      arrived(at - before);
      before = at;
      written({ start, end: at, checksums: { first, values: checksums } });
      first += checksums.length;
    } catch (error) {
      failure ??= error;
    }
  };
  const brought = (await supply.bring?.(file.fd, landed)) ?? start;
  if (failure !== null) throw failure;
  return brought;
}

/** @param start offset of the existing bytes, if the extent follows them */
async function landInFile(
  { extent, chunks, takeBack, giveUp }: Incoming,
  start: number,
  file: FileHandle,
  path: string,
  arrived: (bytes: number) => void,
  written: (there: WrittenExtent) => void,
): Promise<void> {
  let at = extent.start;
  const arriving = new ArrivingChecksums(extent.start);
  let batch: Uint8Array[] = [];
  let batchBytes = 0;
  // One batch is written while the next one arrives. If the service hangs, a failed write ends the wait for it.
  let writing: Promise<void> | null = null;
  let failure: unknown = null;
  const write = () => {
    const [buffers, position] = [batch, at];
    at += batchBytes;
    batch = [];
    batchBytes = 0;
    const end = at;
    if (end === extent.end) arriving.end();
    const checksums = arriving.take();
    writing = asStorageError(path, () => writeAll(file, buffers, position))
      .then(() => {
        for (const buffer of buffers) takeBack?.(buffer);
        written({ start, end, checksums });
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
      arriving.add(chunk);
      batchBytes += chunk.byteLength;
      arrived(chunk.byteLength);
      if (batchBytes >= WRITE_BYTES_MAX) await writing;
      // Written as soon as the previous write ends. The batch has grown meanwhile, which compensates for a slow disk or a busy machine.
      if (writing === null && batchBytes >= WRITE_BYTES_MIN) write();
    }
    await writing;
    if (batchBytes > 0 && failure === null) write();
  } catch (error) {
    failure ??= error;
  } finally {
    // Also after a failure of the chunks: the file must not be closed during a write.
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

/** The rest of `buffers` after their first `bytes` bytes: a write may accept fewer bytes than it got. */
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
