import { readFileSync } from 'node:fs';
import { StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { Parts } from './reference-server.ts';

/**
 * After a start of the *machine*, a partial upload is believed only as far as it was synced: behind that, a power cut may
 * have left zeros where bytes were. After a crash of the server alone the kernel still has every byte that was written.
 */
export async function settlePartialUploads(parts: Parts, bootId: string): Promise<void> {
  const { database, histories, blobs } = parts;
  if (database.meta.get('bootId') === bootId) return;
  for (const row of [...histories.all()]) {
    if (row.complete) continue;
    const sizeBytes = await blobs.sizeBytes(row.blob);
    if (sizeBytes !== null && sizeBytes > row.sizeBytes) await blobs.truncate(row.blob, row.sizeBytes);
  }
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
 * Collects, soon after the start and then every hour: uploads that nobody went on with, expired tokens, and once the blobs
 * that a crash left without a row. @returns what stops it
 */
export function collectGarbage(parts: Parts, options: { uploadKeptMs: number; log: Logger }): () => void {
  const { clock, histories, blobs, accounts } = parts;
  const { log } = options;
  let cancel = (): void => {};
  let isStopped = false;
  const round = async (): Promise<void> => {
    const abandoned = histories.dropAbandoned(clock.nowMs() - options.uploadKeptMs);
    await blobs.remove(abandoned);
    const tokens = accounts.forgetExpired();
    if (abandoned.length + tokens > 0) log.info({ uploads: abandoned.length, tokens }, 'garbage collected');
  };
  const again = (delayMs: number): void => {
    cancel = clock.after(delayMs, () => {
      round()
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
  };
}

const GARBAGE_FIRST_MS = 60_000;
const GARBAGE_INTERVAL_MS = 3600_000;

/** Removes the blobs that no row names. Only while no upload is under way: theirs have no row yet. @returns how many */
export async function sweepBlobs(parts: Pick<Parts, 'histories' | 'blobs'>): Promise<number> {
  const named = new Set<string>();
  for (const row of parts.histories.all()) named.add(row.blob);
  const orphans: string[] = [];
  for await (const name of parts.blobs.names()) if (!named.has(name)) orphans.push(name);
  await parts.blobs.remove(orphans);
  return orphans.length;
}

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
  for (const row of [...parts.histories.all()]) {
    if (!row.complete) continue;
    versions += 1;
    bytes += row.sizeBytes;
    const sizeBytes = await parts.blobs.sizeBytes(row.blob);
    const report = (what: string): void => {
      damage.push({ user: row.uid, file: row.file, version: row.version, what });
    };
    if (sizeBytes === null) report('its data are missing');
    else if (sizeBytes !== row.sizeBytes) report(`it has ${sizeBytes} bytes instead of ${row.sizeBytes}`);
    else if (row.sha256 !== null && (await parts.blobs.sha256(row.blob)) !== row.sha256)
      report('its data are not those that were sent');
  }
  return { damage, versions, bytes };
}
