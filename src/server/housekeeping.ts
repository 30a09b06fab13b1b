import { readFileSync } from 'node:fs';
import { StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { Blobs } from './blobs.ts';
import type { VersionRow } from './database.ts';
import type { Parts } from './server-parts.ts';

/**
 * After a start of the *machine*, a partial upload is believed only as far as it was synced: behind that, a power cut may
 * have left zeros where bytes were. After a crash of the server alone the kernel still has every byte that was written.
 */
export async function settlePartialUploads(parts: Parts, bootId: string): Promise<void> {
  const { database, histories, blobs } = parts;
  if (database.meta.get('bootId') === bootId) return;
  let isSettled = true;
  for await (const rows of histories.inPieces()) {
    for (const row of rows) {
      if (row.complete) continue;
      try {
        const sizeBytes = await blobs.sizeBytes(row.blob);
        if (sizeBytes !== null && sizeBytes > row.sizeBytes) await blobs.truncate(row.blob, row.sizeBytes);
      } catch {
        // One that the disk does not give is no reason to serve nobody: its sender is told, and the next start looks at it again.
        isSettled = false;
      }
    }
  }
  if (!isSettled) return;
  try {
    database.change(() => void database.meta.put('bootId', bootId));
  } catch (error) {
    // A server starts on a full disk, too. The next start cuts once more, which costs an upload what was not synced by then.
    if (!(error instanceof StorageError && error.full)) throw error;
  }
}

/** Changes with every start of the machine; the same text where the system does not tell. */
export function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return 'unknown';
  }
}

/**
 * Collects, soon after the start and then every hour: uploads that nobody went on with, expired tokens, and what a crash left
 * without a row, until none of it is left. @returns what stops it, when the database is needed no more
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
 * Removes the blobs that no row names. Not those of the last hour, which may be of an upload under way, of this server or of one that the
 * lock does not see (data-lock.ts): their row comes when their bytes are there. @returns whether none was left for that
 */
export async function sweepBlobs({
  clock,
  histories,
  blobs,
}: Pick<Parts, 'clock' | 'histories' | 'blobs'>): Promise<boolean> {
  const names: string[] = [];
  for await (const name of blobs.names()) names.push(name);
  // Only now: a row that came meanwhile names what was listed.
  const named = new Set<string>();
  for (const row of histories.all()) named.add(row.blob);
  const orphans: string[] = [];
  let isSwept = true;
  for (const name of names) {
    if (named.has(name)) continue;
    // What the disk does not tell of stays, and is looked at again.
    const changedMs = await blobs.changedMs(name).catch(() => Number.POSITIVE_INFINITY);
    if (changedMs === null) continue;
    if (changedMs < clock.nowMs() - ORPHAN_AFTER_MS) orphans.push(name);
    else isSwept = false;
  }
  await blobs.remove(orphans);
  return isSwept;
}

/** A line is ended when it is silent for two minutes; and the disk needs its time for the last bytes. */
const ORPHAN_AFTER_MS = 3600_000;

/** What `checkBlobs` found wrong with one version. */
export interface Damage {
  readonly user: string;
  readonly file: string;
  readonly version: string;
  readonly what: string;
}

/**
 * Reads every complete version and compares length and SHA-256 (of a long one that arrived a moment ago, only the length).
 * @returns the damage, and how much was checked
 */
export async function checkBlobs(
  parts: Pick<Parts, 'histories' | 'blobs'>,
): Promise<{ damage: Damage[]; versions: number; bytes: number }> {
  const damage: Damage[] = [];
  let versions = 0;
  let bytes = 0;
  for await (const rows of parts.histories.inPieces()) {
    for (const row of rows) {
      if (!row.complete) continue;
      versions += 1;
      bytes += row.sizeBytes;
      const what = await damageOf(parts.blobs, row).catch(
        (error: Error) => `its data cannot be read: ${error.message}`,
      );
      if (what !== null) damage.push({ user: row.uid, file: row.file, version: row.version, what });
    }
  }
  return { damage, versions, bytes };
}

async function damageOf(blobs: Blobs, row: VersionRow): Promise<string | null> {
  const sizeBytes = await blobs.sizeBytes(row.blob);
  if (sizeBytes === null) return 'its data are missing';
  if (sizeBytes !== row.sizeBytes) return `it has ${sizeBytes} bytes instead of ${row.sizeBytes}`;
  if (row.sha256 === null || (await blobs.sha256(row.blob)) === row.sha256) return null;
  return 'its data are not those that were sent';
}
