import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { StorageError } from '../base/errors.ts';
import type { Disk } from './disk.ts';
import { encodeHeader, HEADER_BYTES } from './journal-segment.ts';

/** The files of the journal: their names, their disk space and their start. */

/** A file of the journal. */
export interface Segment {
  readonly number: number;
  readonly path: string;
  /** Sequence number of the last record; `firstSequence - 1` while the file has none. */
  last: number;
}

/** The file to which records are appended. */
export interface OpenSegment extends Segment {
  readonly fd: number;
  readonly salt: number;
  readonly sizeBytes: number;
  position: number;
}

/**
 * The shortest journal file on an almost full disk. It suffices for a start and for deletions and other short changes.
 */
const SEGMENT_BYTES_MIN = 64 * 1024;

/** The file that is allocated in advance and has no number yet. */
export function sparePath(directory: string): string {
  return join(directory, 'spare');
}

export function segmentPath(directory: string, number: number): string {
  return join(directory, String(number).padStart(10, '0'));
}

/** The journal files in a directory, oldest first. */
export function segmentsIn(
  disk: Disk,
  directory: string,
): readonly { readonly number: number; readonly path: string }[] {
  return disk
    .list(directory)
    .filter((name) => /^\d{10}$/.test(name))
    .sort()
    .map((name) => ({ number: Number(name), path: join(directory, name) }));
}

/**
 * Makes the spare file of an earlier run the journal file `path`. A spare file without all its blocks was not completed: it is removed.
 *
 * @returns whether there was one
 */
export function takeSpare(disk: Disk, directory: string, path: string, sizeBytes: number): boolean {
  const spare = sparePath(directory);
  if (disk.diskBytes(spare) < sizeBytes) {
    disk.remove(spare);
    return false;
  }
  disk.rename(spare, path);
  return true;
}

/** Creates a file with reserved space, without waiting for a device. Its first syncs are slower. @returns false if it does not fit */
export function reserveExactly(disk: Disk, path: string, sizeBytes: number): boolean {
  try {
    return reserveFitting(disk, path, sizeBytes, sizeBytes) === sizeBytes;
  } catch (error) {
    if (!isFull(error)) throw error;
    return false;
  }
}

/**
 * Creates a file whose blocks are allocated and on the disk; in the pool.
 *
 * @returns its length: `wantedBytes`, or about half of the free space if that is less (the rest is for the index); null if even
 *   `SEGMENT_BYTES_MIN` do not fit
 * @throws StorageError
 */
export async function allocateFitting(disk: Disk, path: string, wantedBytes: number): Promise<number | null> {
  for (const sizeBytes of sizesDownTo(wantedBytes, SEGMENT_BYTES_MIN)) {
    try {
      await disk.allocate(path, sizeBytes);
      if (sizeBytes === wantedBytes) return sizeBytes;
      const keptBytes = Math.max(Math.floor(sizeBytes / 2), SEGMENT_BYTES_MIN);
      cut(disk, path, keptBytes);
      return keptBytes;
    } catch (error) {
      disk.remove(path);
      if (!isFull(error)) throw error;
    }
  }
  return null;
}

/**
 * Creates a file with reserved space, without waiting for a device. Its first syncs are slower.
 *
 * @param leastBytes the bytes that must fit
 * @returns its length: `wantedBytes`, `leastBytes` if that is more, or as much as fits on the disk
 * @throws StorageError full
 */
export function reserveFitting(disk: Disk, path: string, wantedBytes: number, leastBytes: number): number {
  const fd = disk.open(path, 'create');
  let failure: unknown;
  try {
    for (const sizeBytes of sizesDownTo(Math.max(wantedBytes, leastBytes), Math.max(SEGMENT_BYTES_MIN, leastBytes))) {
      try {
        disk.reserve(fd, sizeBytes);
        return sizeBytes;
      } catch (error) {
        if (!isFull(error)) throw error;
        disk.truncate(fd, 0);
        failure = error;
      }
    }
    throw failure;
  } catch (error) {
    disk.remove(path);
    throw error;
  } finally {
    disk.close(fd);
  }
}

/** Writes the header of an allocated file. */
export function beginSegment(
  { disk, clock }: { readonly disk: Disk; readonly clock: Clock },
  file: { readonly number: number; readonly path: string; readonly sizeBytes: number; readonly firstSequence: number },
): OpenSegment {
  const { number, path, sizeBytes, firstSequence } = file;
  const salt = Math.floor(clock.random() * 0x1_0000_0000);
  const fd = disk.open(path, 'write');
  try {
    disk.write(fd, encodeHeader({ salt, firstSequence }), 0);
  } catch (error) {
    disk.close(fd);
    throw error;
  }
  return { number, path, fd, salt, sizeBytes, position: HEADER_BYTES, last: firstSequence - 1 };
}

export function readWhole(disk: Disk, path: string): Buffer {
  const fd = disk.open(path, 'read');
  try {
    const bytes = Buffer.allocUnsafe(disk.sizeBytes(fd));
    return bytes.subarray(0, disk.read(fd, bytes, 0));
  } finally {
    disk.close(fd);
  }
}

function cut(disk: Disk, path: string, sizeBytes: number): void {
  const fd = disk.open(path, 'write');
  try {
    disk.truncate(fd, sizeBytes);
  } finally {
    disk.close(fd);
  }
}

/** Sizes to try: each is half of the one before, and the last is `leastBytes`. */
function* sizesDownTo(wantedBytes: number, leastBytes: number): Generator<number> {
  let sizeBytes = wantedBytes;
  for (; sizeBytes > leastBytes; sizeBytes = Math.floor(sizeBytes / 2)) yield sizeBytes;
  yield Math.min(wantedBytes, leastBytes);
}

function isFull(error: unknown): boolean {
  return error instanceof StorageError && error.full;
}
