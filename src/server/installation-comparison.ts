import { createHash } from 'node:crypto';
import { type Installation, type InstallationRows, KEYS, type Key, type RowKind } from './installation.ts';
import type { VersionRow } from './rows.ts';

export interface Comparison {
  readonly entries: number;
  readonly versions: number;
  readonly bytes: number;
  /** Number of differences. */
  readonly differences: number;
}

/**
 * Compares all rows of two installations, and length and SHA-256 of the bytes of all versions. Reads both in pieces.
 * @param report called with each difference, as a sentence
 */
export async function compareInstallations(
  left: Installation,
  right: Installation,
  report: (difference: string) => void,
): Promise<Comparison> {
  const totals = { entries: 0, versions: 0, bytes: 0, differences: 0 };
  const differ = (what: string): void => {
    totals.differences += 1;
    report(what);
  };
  const [leftOrigin, rightOrigin] = [await left.origin(), await right.origin()];
  if (leftOrigin !== rightOrigin)
    differ(`the origin is ${leftOrigin} in ${left.name}, ${rightOrigin} in ${right.name}`);
  const compareKind = async <K extends RowKind>(kind: K): Promise<void> => {
    for await (const [key, one, other] of pairs(KEYS[kind], rowsOf(left, kind), rowsOf(right, kind))) {
      const name = `${kind} ${key.join(' ')}`;
      if (one === null || other === null) {
        differ(`${name}: missing in ${(one === null ? left : right).name}`);
        continue;
      }
      if (kind === 'resources') totals.entries += 1;
      if (textOf(kind, one) !== textOf(kind, other)) differ(`${name}: the rows differ`);
      if (kind !== 'versions') continue;
      const [version, copy] = [one as VersionRow, other as VersionRow];
      totals.versions += 1;
      const [mine, its] = await Promise.all([contentOf(left, version), contentOf(right, copy)]);
      totals.bytes += mine.sizeBytes;
      const failure = mine.failure ?? its.failure;
      if (failure !== null) differ(`${name}: ${failure}`);
      else if (mine.sizeBytes !== its.sizeBytes) differ(`${name}: ${mine.sizeBytes} and ${its.sizeBytes} bytes`);
      else if (mine.sha256 !== its.sha256) differ(`${name}: the data differ`);
      else if (version.complete && version.sizeBytes !== mine.sizeBytes)
        differ(`${name}: ${mine.sizeBytes} bytes instead of ${version.sizeBytes}`);
      else if (version.sha256 !== null && version.sha256 !== mine.sha256)
        differ(`${name}: the data are not those that were sent`);
    }
  };
  for (const kind of Object.keys(KEYS) as RowKind[]) await compareKind(kind);
  return totals;
}

interface Content {
  readonly sizeBytes: number;
  readonly sha256: string;
  /** A sentence, for data that cannot be read. */
  readonly failure: string | null;
}

async function contentOf(installation: Installation, version: VersionRow): Promise<Content> {
  const hash = createHash('sha256');
  let read = 0;
  try {
    const sizeBytes = await installation.storedBytes(version);
    if (sizeBytes === null && version.complete) throw new Error('they are missing');
    if ((sizeBytes ?? 0) > 0)
      for await (const chunk of installation.read(version, sizeBytes as number)) {
        hash.update(chunk);
        read += chunk.byteLength;
      }
    return { sizeBytes: read, sha256: hash.digest('hex'), failure: null };
  } catch (error) {
    const failure = `the data in ${installation.name} cannot be read: ${(error as Error).message}`;
    return { sizeBytes: read, sha256: '', failure };
  }
}

/** Rows with equal keys, and rows that only one side has. */
async function* pairs<R>(
  keyOf: (row: R) => Key,
  left: AsyncIterator<R, void>,
  right: AsyncIterator<R, void>,
): AsyncGenerator<[key: Key, left: R | null, right: R | null], void, undefined> {
  let [one, other] = [await left.next(), await right.next()];
  while (one.done !== true || other.done !== true) {
    const [mine, its] = [one.done === true ? null : keyOf(one.value), other.done === true ? null : keyOf(other.value)];
    const order = mine === null ? 1 : its === null ? -1 : compareKeys(mine, its);
    yield [
      (order <= 0 ? mine : its) as Key,
      order <= 0 ? (one.value as R) : null,
      order >= 0 ? (other.value as R) : null,
    ];
    if (order <= 0) one = await left.next();
    if (order >= 0) other = await right.next();
  }
}

async function* rowsOf<K extends RowKind>(
  installation: Installation,
  kind: K,
): AsyncGenerator<InstallationRows[K], void, undefined> {
  for await (const rows of installation.rows(kind)) yield* rows;
}

function compareKeys(left: Key, right: Key): number {
  for (const [at, mine] of left.entries()) {
    const its = right[at] as string | number;
    if (mine !== its) return mine < its ? -1 : 1;
  }
  return 0;
}

/**
 * A row as text, without what differs between back ends: names of blobs, the recorded length of an incomplete version,
 * and whether a hash is computed already.
 */
function textOf(kind: RowKind, row: object): string {
  const ignored = new Set(kind === 'versions' ? ['blob', 'sha256'] : ['blob']);
  if (kind === 'versions' && !(row as VersionRow).complete) ignored.add('sizeBytes');
  return JSON.stringify(row, (name, value: unknown) => {
    if (ignored.has(name)) return undefined;
    if (value instanceof Uint8Array) return Buffer.from(value).toString('hex');
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
    // Buffer's own `toJSON` has run before.
    if ((value as { type?: unknown }).type === 'Buffer')
      return Buffer.from((value as unknown as { data: number[] }).data).toString('hex');
    return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}
