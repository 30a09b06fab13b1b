import { Packr } from 'msgpackr';
import type { IntentId, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import { openRow, sealRow } from './checked-row.ts';
import { decodeValue, encodeValue } from './record-codec.ts';
import { encodeKey } from './row-key.ts';

/**
 * Layout 3 kept one upload record per node, under the inode, and the URLs of discarded versions in table `meta`. An upload keeps its
 * key: as an id, it stays below the counter of intents, which starts at the counter of inodes.
 */

type UploadOfLayout3 = readonly [number, number, ResourceUrl | null, string | null, ResourceUrl | null, number | null];

const packr = new Packr({ useRecords: false, mapsAsObjects: true, variableMapSize: true, copyBuffers: true });
/** By the numbers of `record-codec`. */
const [CREATE_FILE, NEW_VERSION, FILL] = [1, 2, 5];
const [BEGUN, SENT, ABANDONED] = [0, 1, 3];
const DISCARDED_KEY = 'discarded-versions';

/** Damaged rows stay as they are. */
export function intentOfLayout3(key: Buffer, value: Buffer): Buffer {
  const bytes = openRow(key, value);
  if (bytes === null) return value;
  const row = packr.unpack(bytes) as readonly [...UploadOfLayout3, VersionUrl | null, true?];
  const [action, startedMs, parentResource, name, resource, content, version] = row;
  const isFill = action === CREATE_FILE && content !== null && version === null;
  const isVersion = content !== null && !isFill;
  const given = isFill ? FILL : isVersion ? NEW_VERSION : action;
  const phase = isFill || (isVersion && version === null) ? BEGUN : SENT;
  const owner = Number(key.readBigUInt64BE(1));
  const now = [given, startedMs, parentResource, name, resource, content, version, null, owner, phase, null];
  return sealRow(key, packr.pack(now));
}

interface Rows {
  getBinary(key: Buffer): Buffer | undefined;
  putSync(key: Buffer, value: Buffer): unknown;
  removeSync(key: Buffer): unknown;
}

/** The counter of intents, and the discarded versions as abandoned intents. */
export function endOfLayout3(database: Rows): void {
  let next = Number(fact(database, 'next-inode') ?? 1);
  const discarded = JSON.parse(String(fact(database, DISCARDED_KEY) ?? '[]')) as VersionUrl[];
  for (const version of discarded) {
    const key = encodeKey('intent', next++ as IntentId);
    const row = [NEW_VERSION, 0, null, null, null, null, version, null, 0, ABANDONED, null];
    database.putSync(key, sealRow(key, packr.pack(row)));
  }
  database.removeSync(encodeKey('meta', DISCARDED_KEY));
  const counter = encodeKey('meta', 'next-intent');
  database.putSync(counter, Buffer.from(encodeValue('meta', 'next-intent', counter, next)));
}

function fact(database: Rows, name: string): string | number | undefined {
  const key = encodeKey('meta', name);
  const bytes = database.getBinary(key);
  return bytes === undefined ? undefined : decodeValue('meta', name, key, bytes);
}
