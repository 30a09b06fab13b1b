import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { asStorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { NewestBytes } from '../base/resources.ts';
import { BLOCK_BYTES, type ContentId, type Extent } from '../base/vocabulary.ts';
import { writeAll } from '../base/write-all.ts';
import { alignOut } from '../bytes/extents.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { VersionSource } from './version-source.ts';

/** A file up to this size is requested whole, as `BlockReader` does; of a longer one the blocks of a first read up to this length. */
const EARLY_BYTES_MAX = 1024 * 1024;

/** Bytes of a first read, requested together with the version that they must be of. */
export interface EarlyBytes {
  /** Begins and ends at blocks. */
  readonly extent: Extent;
  /** The size of the file by its listing. */
  readonly sizeBytes: number;
  /** Null if they do not come, for whatever reason. Never rejects. */
  readonly bytes: Promise<NewestBytes | null>;
}

interface EarlyDeps {
  readonly source: Pick<VersionSource, 'readNewest'>;
  readonly reader: { expect(content: ContentId, early: EarlyBytes): boolean };
  readonly log: Logger;
}

/**
 * Runs `pin`, which requests the newest version of a file, and requests the bytes that are read next at the same time: one round trip instead
 * of two. The service names the version with the bytes, and the reader takes them only if that is the version of the content (ADR 12).
 *
 * @param node undefined if the bytes are not those of the newest version
 * @param toRead null if the file is not read
 * @param pin resolves to the content that is read from now on
 */
export async function withEarlyBytes(
  deps: EarlyDeps,
  node: NodeRecord | undefined,
  toRead: Extent | null,
  pin: () => Promise<ContentId | null>,
): Promise<void> {
  const giveUp = new AbortController();
  const early = toRead === null ? null : requested(deps, node, toRead, giveUp.signal);
  let mayCome = early !== null;
  void early?.bytes.then((newest) => {
    mayCome = newest !== null;
  });
  let isExpected = false;
  try {
    const content = await pin();
    isExpected = early !== null && mayCome && content !== null && deps.reader.expect(content, early);
  } finally {
    if (!isExpected) giveUp.abort();
  }
}

/** @returns null if the file has no bytes to request, or some of its bytes may be known */
function requested(
  { source, log }: EarlyDeps,
  node: NodeRecord | undefined,
  toRead: Extent,
  signal: AbortSignal,
): EarlyBytes | null {
  const { local = null, remote = null } = node ?? {};
  if (local === null || remote === null || local.content !== null || remote.content !== null) return null;
  const { sizeBytes } = local;
  if (source.readNewest === undefined || toRead.start >= Math.min(toRead.end, sizeBytes)) return null;
  const extent = sizeBytes <= EARLY_BYTES_MAX ? { start: 0, end: sizeBytes } : alignOut(toRead, BLOCK_BYTES, sizeBytes);
  // A longer range is fetched in parts, side by side.
  if (extent.end - extent.start > EARLY_BYTES_MAX) return null;
  const bytes = source.readNewest(remote.resource, extent, sizeBytes, signal).catch((err: unknown) => {
    log.debug({ resource: remote.resource, ...extent, err }, 'bytes did not come with their version');
    return null;
  });
  return { extent, sizeBytes, bytes };
}

/**
 * Writes into a file in the thread pool: the system may make the writer wait for its disk.
 *
 * @throws StorageError
 */
export function writeAt(path: string, bytes: Uint8Array, position: number): Promise<void> {
  return asStorageError(path, async () => {
    const file = await open(path, constants.O_WRONLY | constants.O_CREAT, 0o600);
    try {
      await writeAll(file, bytes, position);
    } finally {
      await file.close();
    }
  });
}
