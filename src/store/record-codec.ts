import { Packr } from 'msgpackr';
import { StorageError } from '../base/errors.ts';
import type { ContentId, Inode, NodeKind, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import { openRow, sealRow } from './checked-row.ts';
import type { IntentPhase } from './intent-phase.ts';
import type { ServiceTime } from './service-time.ts';
import type {
  ContentRecord,
  DepartedRecord,
  DirtyRecord,
  IntentRecord,
  LocalFacet,
  NodeRecord,
  ParkReason,
  RemoteFacet,
  TableName,
  Tables,
} from './tables.ts';

/**
 * Records as bytes: positional arrays without field names, each in a checked row (`checked-row`). A changed layout is a new
 * SCHEMA_VERSION (`schema-version`). New fields are added at the end.
 */

interface Codec<T> {
  encode(value: T): Uint8Array;
  /** `bytes` is valid only during the call: the result must not keep a view of it. */
  decode(bytes: Uint8Array, key: unknown): T;
}

const packr = new Packr({ useRecords: false, mapsAsObjects: true, variableMapSize: true, copyBuffers: true });

/** By their number in a row: new kinds are added at the end. An older program shows EIO for a kind that it does not know. */
const KINDS: readonly NodeKind[] = ['file', 'folder', 'symlink', 'fifo', 'socket'];
const PLACES: readonly ContentRecord['where'][] = ['none', 'inline', 'file'];
const ACTIONS: readonly IntentRecord['action'][] = [
  'create-folder',
  'create-file',
  'new-version',
  'relocate',
  'trash',
  'fill',
  'copy-file',
  'restore',
];
const PHASES: readonly IntentPhase[] = ['begun', 'sent', 'interrupted', 'abandoned'];

type PackedLocal = readonly unknown[];

function packLocal(local: LocalFacet | null): PackedLocal | null {
  if (local === null) return null;
  const { atime, mtime, ctime } = local;
  return [
    local.parent,
    local.name,
    local.mode,
    local.uid,
    local.gid,
    atime.sec,
    atime.nsec,
    mtime.sec,
    mtime.nsec,
    ctime.sec,
    ctime.nsec,
    local.content,
    local.sizeBytes,
    local.xattrs,
  ];
}

function unpackLocal(row: PackedLocal | null): LocalFacet | null {
  if (row === null) return null;
  return {
    parent: row[0] as Inode,
    name: row[1] as string,
    mode: row[2] as number,
    uid: row[3] as number,
    gid: row[4] as number,
    atime: { sec: row[5] as number, nsec: row[6] as number },
    mtime: { sec: row[7] as number, nsec: row[8] as number },
    ctime: { sec: row[9] as number, nsec: row[10] as number },
    content: row[11] as ContentId | null,
    sizeBytes: row[12] as number,
    xattrs: unpackXattrs(row[13] as Readonly<Record<string, Uint8Array>> | null),
  };
}

function unpackXattrs(xattrs: Readonly<Record<string, Uint8Array>> | null): LocalFacet['xattrs'] {
  if (xattrs === null) return null;
  return Object.fromEntries(Object.entries(xattrs).map(([name, value]) => [name, new Uint8Array(value)]));
}

/**
 * A time as one number: whole milliseconds plus a fraction for the certainty. This is the form of layouts 1 to 3, so older programs can
 * read the rows of this one.
 */
const CERTAINTY_PARTS = { exact: 0, racy: -0.5, suspect: -0.25, 'upper-bound': 0.25, 'suspect-bound': 0.125 } as const;

function packTime(time: ServiceTime | null): number | null {
  return time === null ? null : time.ms + CERTAINTY_PARTS[time.certainty];
}

function unpackTime(stored: number | null): ServiceTime | null {
  if (stored === null) return null;
  const part = stored - Math.floor(stored);
  if (part === 0.25) return { ms: Math.floor(stored), certainty: 'upper-bound' };
  if (part === 0.125) return { ms: Math.floor(stored), certainty: 'suspect-bound' };
  // Adding 0 makes 0 of -0.
  return { ms: Math.ceil(stored) + 0, certainty: part === 0.5 ? 'racy' : part === 0.75 ? 'suspect' : 'exact' };
}

/** The last value is left out if there is none. Rows of older programs lack it, and may have a tenth value, which is ignored. */
function packRemote(remote: RemoteFacet | null): readonly unknown[] | null {
  if (remote === null) return null;
  return [
    remote.resource,
    remote.parent,
    remote.name,
    remote.shownAs === remote.name ? null : remote.shownAs,
    remote.sizeBytes,
    packTime(remote.modified),
    remote.mediaType,
    remote.content,
    remote.createdHereMs,
    ...(remote.nameBefore === undefined ? [] : [null, remote.nameBefore]),
  ];
}

function unpackRemote(row: readonly unknown[] | null): RemoteFacet | null {
  if (row === null) return null;
  return {
    resource: row[0] as ResourceUrl,
    parent: row[1] as Inode,
    name: row[2] as string,
    shownAs: (row[3] ?? row[2]) as string,
    sizeBytes: row[4] as number | null,
    modified: unpackTime(row[5] as number | null),
    mediaType: row[6] as string | null,
    content: row[7] as ContentId | null,
    createdHereMs: row[8] as number | null,
    ...(row[10] != null && { nameBefore: row[10] as string }),
    // A row of an older program may have a twelfth value, which is ignored: whether the number in `shownAs` is temporary. All are now.
  };
}

/** Bytes without encoding. The store keeps the array that is put: the caller must not change it any more. */
const raw: Codec<Uint8Array> = {
  encode: (value) => value,
  decode: (bytes) => new Uint8Array(bytes),
};

/** Small contents, without encoding. */
const small: Codec<Uint8Array | 'damaged'> = {
  encode: (value) => {
    if (value === 'damaged') throw new TypeError('damaged bytes are not stored');
    return value;
  },
  decode: (bytes) => new Uint8Array(bytes),
};

function packed<T>(toRow: (value: T) => unknown, ofRow: (row: never, key: unknown) => T): Codec<T> {
  return {
    encode: (value) => packr.pack(toRow(value)),
    decode: (bytes, key) => ofRow(packr.unpack(bytes) as never, key),
  };
}

/** A row whose presence says everything. */
const mark: Codec<true> = packed<true>(
  () => 1,
  () => true,
);

const plain = <T>(): Codec<T> =>
  packed<T>(
    (value) => value,
    (row) => row,
  );

const CODECS: { readonly [T in TableName]: Codec<Tables[T]['value']> } = {
  meta: plain(),
  node: packed<NodeRecord>(
    (node) => [KINDS.indexOf(node.kind), node.localOnly, packLocal(node.local), packRemote(node.remote)],
    (row: readonly [number, boolean, PackedLocal | null, readonly unknown[] | null], key) => ({
      ino: key as Inode,
      kind: KINDS[row[0]] as NodeKind,
      localOnly: row[1],
      local: unpackLocal(row[2]),
      remote: unpackRemote(row[3]),
    }),
  ),
  name: plain(),
  resource: plain(),
  folder: packed(
    (folder) => [folder.listedMs],
    (row: readonly [number]) => ({ listedMs: row[0] }),
  ),
  dirty: packed<DirtyRecord>(
    ({ sinceMs, parked }) => (parked === null ? [sinceMs] : [sinceMs, parked.reason, parked.detail, parked.atMs]),
    (row: readonly [number, ParkReason?, string?, number?]) => ({
      sinceMs: row[0],
      parked: row[1] === undefined ? null : { reason: row[1], detail: row[2] ?? '', atMs: row[3] ?? 0 },
    }),
  ),
  content: packed<ContentRecord>(
    (content) => [
      content.kind === 'version',
      content.sealed,
      content.sizeBytes,
      content.version,
      content.resource,
      PLACES.indexOf(content.where),
      content.base,
      content.baseBytes,
      content.extents,
      content.refs,
    ],
    (
      row: readonly [
        boolean,
        boolean,
        number,
        VersionUrl | null,
        ResourceUrl | null,
        number,
        ContentId | null,
        number,
        readonly number[],
        number,
      ],
    ) => ({
      kind: row[0] ? 'version' : 'draft',
      sealed: row[1],
      sizeBytes: row[2],
      version: row[3],
      resource: row[4],
      where: PLACES[row[5]] as ContentRecord['where'],
      base: row[6],
      baseBytes: row[7],
      extents: row[8],
      refs: row[9],
    }),
  ),
  inline: small,
  blocks: raw,
  version: plain(),
  intent: packed<IntentRecord>(
    (intent) => [
      ACTIONS.indexOf(intent.action),
      intent.startedMs,
      intent.parentResource,
      intent.name,
      intent.resource,
      intent.content,
      intent.version,
      null, // of an older program
      intent.owner,
      PHASES.indexOf(intent.phase),
      intent.sizeBytes,
    ],
    (
      row: readonly [
        ...(readonly [number, number, ResourceUrl | null, string | null, ResourceUrl | null, ContentId | null]),
        ...(readonly [VersionUrl | null, unknown, Inode, number, number | null]),
      ],
    ) => ({
      action: ACTIONS[row[0]] as IntentRecord['action'],
      startedMs: row[1],
      parentResource: row[2],
      name: row[3],
      resource: row[4],
      content: row[5],
      version: row[6],
      owner: row[8],
      phase: PHASES[row[9]] as IntentPhase,
      sizeBytes: row[10],
    }),
  ),
  garbage: mark,
  local: mark,
  departed: packed<DepartedRecord>(
    (row) => [
      row.departedMs,
      row.mode,
      row.uid,
      row.gid,
      row.atime.sec,
      row.atime.nsec,
      row.mtime.sec,
      row.mtime.nsec,
      row.xattrs,
      row.sizeBytes,
      packTime(row.modified),
      row.isPinned,
    ],
    (
      row: readonly [
        ...(readonly [number, number, number, number, number, number, number, number]),
        Readonly<Record<string, Uint8Array>> | null,
        number | null,
        number | null,
        boolean,
      ],
    ) => ({
      departedMs: row[0],
      mode: row[1],
      uid: row[2],
      gid: row[3],
      atime: { sec: row[4], nsec: row[5] },
      mtime: { sec: row[6], nsec: row[7] },
      xattrs: unpackXattrs(row[8]),
      sizeBytes: row[9],
      modified: unpackTime(row[10]),
      isPinned: row[11],
    }),
  ),
};

/** Every version of this program must be able to read these before it knows the layout: they are not in checked rows. */
const UNCHECKED_META: ReadonlySet<string> = new Set(['schema', 'migrating']);

/** @param keyBytes `key` as `row-key` encodes it */
export function encodeValue<T extends TableName>(
  table: T,
  key: Tables[T]['key'],
  keyBytes: Uint8Array,
  value: Tables[T]['value'],
): Uint8Array {
  const bytes = CODECS[table].encode(value);
  return isUnchecked(table, key) ? bytes : sealRow(keyBytes, bytes);
}

/**
 * Keeps no view of `bytes`. Some damaged rows have a substitute, because their loss is harmless or their presence says enough
 * (`valueOfDamaged`):
 *
 * - a row of a block map counts as missing: its blocks are fetched again,
 * - small contents are `damaged`,
 * - a dirty row still marks its node as dirty, and a local one its node as local-only,
 * - an upload row counts as missing: the push starts again,
 * - a row of attributes of a removed node counts as missing.
 *
 * @throws DamagedRow
 */
export function decodeValue<T extends TableName>(
  table: T,
  key: Tables[T]['key'],
  keyBytes: Uint8Array,
  bytes: Uint8Array,
): Tables[T]['value'] | undefined {
  if (isUnchecked(table, key)) return CODECS[table].decode(bytes, key);
  const value = openRow(keyBytes, bytes);
  return value === null ? valueOfDamaged(table, key) : CODECS[table].decode(value, key);
}

/** The substitute for a damaged row; undefined: the row counts as missing. @throws DamagedRow */
export function valueOfDamaged<T extends TableName>(table: T, key: Tables[T]['key']): Tables[T]['value'] | undefined {
  if (table === 'inline') return 'damaged' as Tables[T]['value'];
  if (table === 'blocks' || table === 'intent' || table === 'departed') return undefined;
  if (table === 'local') return true as Tables[T]['value'];
  if (table === 'dirty') return { sinceMs: 0, parked: null } satisfies DirtyRecord as Tables[T]['value'];
  throw new DamagedRow(table, key);
}

/** Whether a row has the right checksum. */
export function isSound<T extends TableName>(
  table: T,
  key: Tables[T]['key'],
  keyBytes: Uint8Array,
  bytes: Uint8Array,
): boolean {
  return isUnchecked(table, key) || openRow(keyBytes, bytes) !== null;
}

function isUnchecked(table: TableName, key: unknown): boolean {
  return table === 'meta' && UNCHECKED_META.has(key as string);
}

/** A row whose checksum is wrong: the disk returned other bytes than were written. */
export class DamagedRow extends StorageError {
  constructor(table: TableName, key: unknown) {
    super(`the store is damaged: row ${table} ${JSON.stringify(key)} has a wrong checksum`);
  }
}
