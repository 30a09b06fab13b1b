import { readFileSync } from 'node:fs';
import { StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { finishRemovals } from './account-removal.ts';
import type { Parts } from './server-parts.ts';
import { type CheckedVersions, checkVersions } from './version-check.ts';

/**
 * After a reboot, a partial upload is trusted only up to its synced length: a power cut may have left zeros after it.
 * After a crash of the server alone, the kernel still has every written byte.
 */
export async function truncatePartialUploads(parts: Parts, bootId: string): Promise<void> {
  const { database, histories, blobs } = parts;
  if (database.meta.get('bootId') === bootId) return;
  let isComplete = true;
  for await (const rows of histories.inPieces()) {
    for (const row of rows) {
      if (row.complete) continue;
      try {
        const sizeBytes = await blobs.sizeBytes(row.blob);
        if (sizeBytes !== null && sizeBytes > row.sizeBytes) await blobs.truncate(row.blob, row.sizeBytes);
      } catch {
        // A blob that cannot be read must not stop the server: its sender gets the error, and the next start checks it
        // again.
        isComplete = false;
      }
    }
  }
  if (!isComplete) return;
  try {
    database.change(() => void database.meta.put('bootId', bootId));
  } catch (error) {
    // A full disk must not stop the start. The next start truncates again, and then an upload loses bytes not synced by
    // then.
    if (!(error instanceof StorageError && error.full)) throw error;
  }
}

/** Changes with every boot; constant if the system does not provide it. */
export function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return 'unknown';
  }
}

/**
 * Collects garbage soon after the start and then every hour: abandoned uploads, expired tokens, and, until none is
 * left, files without a row after a crash. @returns a function that stops it, before the database closes
 */
export function collectGarbage(parts: Parts, options: { uploadKeptMs: number; log: Logger }): () => Promise<void> {
  const { clock, histories, blobs, accounts, uploads } = parts;
  const { log } = options;
  let cancel = (): void => {};
  let isStopped = false;
  let underWay = Promise.resolve();
  let isSwept = false;
  const round = async (): Promise<void> => {
    const abandoned = await histories.dropAbandoned(clock.nowMs() - options.uploadKeptMs, (row) =>
      uploads.isUnderWay(row),
    );
    await blobs.remove(abandoned);
    await finishRemovals(parts.database, blobs);
    if (!isSwept) isSwept = await sweepBlobs(parts);
    const tokens = accounts.forgetExpired();
    if (abandoned.length + tokens > 0) log.info({ uploads: abandoned.length, tokens }, 'garbage collected');
  };
  const again = (delayMs: number): void => {
    cancel = clock.after(delayMs, () => {
      underWay = round()
        .catch((err: unknown) => log.warn({ err }, 'garbage not collected'))
        .finally(() => {
          if (!isStopped) again(GARBAGE_INTERVAL_MS);
        });
    });
  };
  again(GARBAGE_FIRST_MS);
  return () => {
    isStopped = true;
    cancel();
    return underWay;
  };
}

const GARBAGE_FIRST_MS = 60_000;
const GARBAGE_INTERVAL_MS = 3600_000;

/**
 * Deletes blobs that no row names. Blobs of the last hour are kept: they may belong to an upload in progress, of this
 * server or of one that the lock does not detect (data-lock.ts), whose row follows its bytes. @returns whether no blob
 * was kept for that reason
 */
export async function sweepBlobs({
  clock,
  histories,
  blobs,
}: Pick<Parts, 'clock' | 'histories' | 'blobs'>): Promise<boolean> {
  const names: string[] = [];
  for await (const name of blobs.names()) names.push(name);
  // Read rows after the listing: a row written meanwhile may name a listed blob.
  const named = new Set<string>();
  for (const row of histories.all()) named.add(row.blob);
  const orphans: string[] = [];
  let isSwept = true;
  for (const name of names) {
    if (blobs.isStored(name)) {
      // Moved, but not removed: a crash in between.
      orphans.push(name);
      continue;
    }
    if (named.has(name)) continue;
    // A blob whose time cannot be read is kept until the next sweep.
    const changedMs = await blobs.changedMs(name).catch(() => Number.POSITIVE_INFINITY);
    if (changedMs === null) continue;
    if (changedMs < clock.nowMs() - ORPHAN_AFTER_MS) orphans.push(name);
    else isSwept = false;
  }
  await blobs.remove(orphans);
  return isSwept;
}

/** A silent connection is closed after two minutes; writing the last bytes to disk takes additional time. */
const ORPHAN_AFTER_MS = 3600_000;

/** `checkVersions` of a data directory. */
export function checkBlobs({ histories, blobs }: Pick<Parts, 'histories' | 'blobs'>): Promise<CheckedVersions> {
  return checkVersions({
    versions: () => histories.inPieces(),
    has: async (row) => histories.has(row),
    storedBytes: (row) => blobs.sizeBytes(row.blob),
    sha256: (row) => blobs.sha256(row.blob),
  });
}
