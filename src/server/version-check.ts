import type { VersionRow } from './rows.ts';

/** A fault that `checkVersions` found in one version. */
export interface Damage {
  readonly user: string;
  readonly file: string;
  readonly version: string;
  readonly what: string;
}

export interface CheckedVersions {
  readonly damage: readonly Damage[];
  readonly versions: number;
  readonly bytes: number;
}

/** The versions of a back end with their bytes. */
export interface VersionSource {
  versions(): AsyncIterable<readonly VersionRow[]>;
  has(row: VersionRow): Promise<boolean>;
  /** Null if there are no bytes. */
  storedBytes(row: VersionRow): Promise<number | null>;
  /** Hexadecimal, of the stored bytes. */
  sha256(row: VersionRow): Promise<string>;
}

/**
 * Reads every complete version and compares its length and SHA-256 (only the length for one that is not hashed yet).
 * Servers may run meanwhile: a version that was deleted since is no damage.
 */
export async function checkVersions(source: VersionSource): Promise<CheckedVersions> {
  const damage: Damage[] = [];
  let versions = 0;
  let bytes = 0;
  for await (const rows of source.versions()) {
    for (const row of rows) {
      if (!row.complete) continue;
      const what = await damageOf(source, row).catch((error: Error) => `its data cannot be read: ${error.message}`);
      if (what !== null && !(await source.has(row))) continue;
      versions += 1;
      bytes += row.sizeBytes;
      if (what !== null) damage.push({ user: row.uid, file: row.file, version: row.version, what });
    }
  }
  return { damage, versions, bytes };
}

async function damageOf(source: VersionSource, row: VersionRow): Promise<string | null> {
  const sizeBytes = await source.storedBytes(row);
  if (sizeBytes === null) return 'its data are missing';
  if (sizeBytes !== row.sizeBytes) return `it has ${sizeBytes} bytes instead of ${row.sizeBytes}`;
  if (row.sha256 === null || (await source.sha256(row)) === row.sha256) return null;
  return 'its data are not those that were sent';
}
