import { createHash } from 'node:crypto';
import { StorageError } from '../base/errors.ts';
import { type CopyTarget, type Installation, KEYS, type RowKind, type StoredVersion } from './installation.ts';
import type { VersionRow } from './rows.ts';

export interface CopyTotals {
  readonly entries: number;
  readonly versions: number;
  /** Of versions. */
  readonly bytes: number;
}

/**
 * Copies an installation into a new one of any back end. After an interruption it continues: rows that are there stay,
 * and a version has a row only after its bytes.
 *
 * @param deps.report called after each piece, with the amounts so far, those of an earlier attempt included
 * @throws StorageError for a version whose bytes are not those that were received
 */
export async function copyInstallation(deps: {
  source: Installation;
  target: CopyTarget;
  origin: string;
  report: (totals: CopyTotals) => void;
}): Promise<CopyTotals> {
  const { source, target, report } = deps;
  const totals = { entries: 0, versions: 0, bytes: 0 };
  await target.begin(source.identity, deps.origin);
  for (const kind of Object.keys(KEYS) as RowKind[]) {
    if (kind === 'versions') continue;
    for await (const rows of source.rows(kind)) {
      await target.add(kind, rows);
      if (kind === 'resources') totals.entries += rows.length;
      report(totals);
    }
  }
  for await (const piece of source.rows('versions')) {
    for (let at = 0; at < piece.length; at += VERSIONS_AT_ONCE) {
      const rows = piece.slice(at, at + VERSIONS_AT_ONCE);
      await copyVersions(source, target, rows);
      totals.versions += rows.length;
      for (const { sizeBytes } of rows) totals.bytes += sizeBytes;
      report(totals);
    }
  }
  await target.finish(await source.nextNumbers());
  return totals;
}

async function copyVersions(source: Installation, target: CopyTarget, rows: readonly VersionRow[]): Promise<void> {
  const known = await target.knownVersions(rows);
  const missing = rows.filter((row) => !known.has(row));
  const few: StoredVersion[] = [];
  for (const row of missing.filter(isSmall)) few.push(await copyBytes(source, target, row));
  if (few.length > 0) await target.addVersions(few);
  const long = missing.filter((row) => !isSmall(row));
  // A long version has a change of its own, so that an interruption repeats few of them.
  const lane = async (): Promise<void> => {
    for (let row = long.shift(); row !== undefined; row = long.shift())
      await target.addVersions([await copyBytes(source, target, row)]);
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(LANES, long.length) }, lane));
  for (const outcome of ended) if (outcome.status === 'rejected') throw outcome.reason;
}

async function copyBytes(source: Installation, target: CopyTarget, row: VersionRow): Promise<StoredVersion> {
  const damaged = (what: string, cause?: unknown): StorageError =>
    new StorageError(
      `user ${row.uid}, file ${row.file}, version ${row.version}: ${what}. Delete the file, or restore a backup, ` +
        'and repeat the command',
      { cause },
    );
  const storedBytes = await source.storedBytes(row);
  // An upload that has not begun.
  if (storedBytes === null && row.complete) throw damaged('its data are missing');
  const sizeBytes = storedBytes ?? 0;
  if (row.complete && sizeBytes !== row.sizeBytes)
    throw damaged(`it has ${sizeBytes} bytes instead of ${row.sizeBytes}`);
  const hash = createHash('sha256');
  async function* hashed(): AsyncGenerator<Uint8Array, void, undefined> {
    if (sizeBytes === 0) return;
    for await (const chunk of source.read(row, sizeBytes)) {
      hash.update(chunk);
      yield chunk;
    }
  }
  const stored = await target.store({ ...row, sizeBytes }, hashed());
  if (!row.complete) return stored;
  const sha256 = hash.digest('hex');
  if (row.sha256 !== null && row.sha256 !== sha256) throw damaged('its data are not those that were sent');
  return { ...stored, row: { ...stored.row, sha256 } };
}

function isSmall({ complete, sizeBytes }: VersionRow): boolean {
  return complete && sizeBytes <= SMALL_BYTES_MAX;
}

/** As few as lie in a row of either back end (`blob-writer.ts`, `part-file.ts`). */
export const SMALL_BYTES_MAX = 16 * 1024;
/** In memory at a time: at most 1.6 MiB. */
const VERSIONS_AT_ONCE = 100;
/** Long versions at a time. */
const LANES = 4;
