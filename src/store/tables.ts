import type { ContentId, Inode, IntentId, NodeKind, ResourceUrl, Timespec, VersionUrl } from '../base/vocabulary.ts';
import type { IntentAction, IntentPhase } from './intent-phase.ts';
import type { ServiceTime } from './service-time.ts';

/**
 * What is stored, table by table. Every change is one journal record that may touch several tables (`Store.transact`).
 * Records are immutable plain data: a change writes a new record, it never edits one that was read.
 */

/** What users see of a node. Written by user operations and by merges, by nothing else. */
export interface LocalFacet {
  readonly parent: Inode;
  /** File name as the kernel knows it. */
  readonly name: string;
  /** Permission bits (07777). */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly atime: Timespec;
  readonly mtime: Timespec;
  readonly ctime: Timespec;
  /** `user.*` attributes that were set here; null for none. */
  readonly xattrs: Readonly<Record<string, Uint8Array>> | null;
  /**
   * The bytes. A symlink's are its target. Null: whatever the newest version on the service holds (nothing was changed here
   * and no version was pinned yet); always null for folders.
   */
  readonly content: ContentId | null;
  /** Length of the file (0 for folders). */
  readonly sizeBytes: number;
}

/** What a file holds: its bytes, how many they are, since when. */
export type FileBytes = Pick<LocalFacet, 'content' | 'sizeBytes' | 'mtime'>;

/**
 * The last known state of a node's resource on the service; while the bytes are changed here, the base of that change. Written by listings, by
 * acknowledged pushes, and by writes over an older version that is still open.
 */
export interface RemoteFacet {
  readonly resource: ResourceUrl;
  /** Our inode of the folder in which the service has it. */
  readonly parent: Inode;
  /** displayName, raw. */
  readonly name: string;
  /** The file name that `tree/names` gave to `name` in that folder (with the suffix of a duplicate). The next listing may give another. */
  readonly shownAs: string;
  /** Null for folders and for files that were created but never filled. */
  readonly sizeBytes: number | null;
  /** Null: the service has not reported a time, or the node is a folder. */
  readonly modified: ServiceTime | null;
  readonly mediaType: string | null;
  /** The content that holds the newest version's bytes as far as we know; null: not asked yet. Always null for folders. */
  readonly content: ContentId | null;
  /** This mount created the resource at this time (wall, ms); null if another client did, or longer ago than `--save-window`. */
  readonly createdHereMs: number | null;
  /** What the service called it before it went to a temporary name of ours, out of the way of another: so it is called again in the trash. */
  readonly nameBefore?: string;
}

/**
 * The stored record of an inode. Clean: both facets agree. `local === null`: deleted here, not yet there (a tombstone).
 * `remote === null`: it does not exist on the service. Both null: the record is removed.
 */
export interface NodeRecord {
  readonly ino: Inode;
  readonly kind: NodeKind;
  /** The name never travels (`tree/names`), nor does a special file, nor anything below a folder of such a name: never dirty, never pushed. */
  readonly localOnly: boolean;
  readonly local: LocalFacet | null;
  readonly remote: RemoteFacet | null;
}

/** How far a folder's listing is known. Absent for a folder that was never listed (unless it exists only here: then it is complete). */
export interface FolderRecord {
  /** When the newest merged listing was *requested* (wall, ms). */
  readonly listedMs: number;
}

export type ParkReason =
  | 'forbidden'
  | 'quota'
  | 'name-refused'
  | 'base-lost'
  | 'not-found'
  | 'conflict'
  | 'local-damage'
  | 'refused';

/** Why and since when a node is dirty: the index of what is to be pushed. Kept by `node-table`. */
export interface DirtyRecord {
  readonly sinceMs: number;
  readonly parked: { readonly reason: ParkReason; readonly detail: string; readonly atMs: number } | null;
}

/**
 * A row of bytes. Either a *version* (sealed; which blocks are here says the block map) or a *draft* (own extents over a base).
 * Its own bytes lie in table `inline` or in the content file of the same id. A draft that was acknowledged becomes a version.
 */
export interface ContentRecord {
  readonly kind: 'version' | 'draft';
  readonly sealed: boolean;
  readonly sizeBytes: number;
  /** Set for versions; null for drafts. */
  readonly version: VersionUrl | null;
  /** File that the version belongs to (for fetching). A draft has one if the service holds it as the file's first version without a known URL. */
  readonly resource: ResourceUrl | null;
  readonly where: 'none' | 'inline' | 'file';
  /** What lies under the own extents, and how many of its bytes are visible; beyond are zeros. Null: zeros. */
  readonly base: ContentId | null;
  readonly baseBytes: number;
  /** Own extents of a draft, flat and sorted: [start, end, start, end, …]. Empty for versions. */
  readonly extents: readonly number[];
  /** Node facets, bases and intents that name this content. At 0 it is collected (when no lease holds it). */
  readonly refs: number;
}

/** An operation that was begun on the service (`intents`). Open: its outcome must be found out. At most one open intent per node. */
export interface IntentRecord {
  /** The node that the operation is for. Renaming a file over another one transfers the other one's intent (`tree/ownership-transfer`). */
  readonly owner: Inode;
  readonly phase: IntentPhase;
  readonly action: IntentAction;
  /** Wall time of the start, ms. */
  readonly startedMs: number;
  /** Creations and moves: the folder and the name that were requested. */
  readonly parentResource: ResourceUrl | null;
  readonly name: string | null;
  /** The resource that the operation changes; null for creations. */
  readonly resource: ResourceUrl | null;
  /** The frozen draft that is being sent. Holds a reference. Null once the upload is abandoned. */
  readonly content: ContentId | null;
  /** Our version, once its URL came in an answer to us. Nothing else is ever written to. */
  readonly version: VersionUrl | null;
  /**
   * Length of an abandoned upload, in bytes: identifies its version where the URL is unknown. Of a file that comes back from the trash: its
   * known length. Null for other open intents.
   */
  readonly sizeBytes: number | null;
}

/** What users had set on a node that is gone because the service said so, under its address (`departed-attributes`). */
export interface DepartedRecord
  extends Pick<LocalFacet, 'mode' | 'uid' | 'gid' | 'atime' | 'mtime' | 'xattrs'>,
    Pick<RemoteFacet, 'sizeBytes' | 'modified'> {
  /** When it was removed here (wall, ms). */
  readonly departedMs: number;
  readonly isPinned: boolean;
}

/** Key and value of every table. A key that is a tuple is scanned by its first member (`StoreReader.scan`). */
export interface Tables {
  /** Single facts: schema, counters (`next-inode`, `next-content`, `next-intent`), account, root. */
  meta: { key: string; value: string | number };
  node: { key: Inode; value: NodeRecord };
  /** dentries */
  name: { key: readonly [Inode, string]; value: Inode };
  /** Which node a resource belongs to. */
  resource: { key: ResourceUrl; value: Inode };
  folder: { key: Inode; value: FolderRecord };
  dirty: { key: Inode; value: DirtyRecord };
  /** Which nodes stay on this machine (`staysHere`). Kept by `node-table`. */
  local: { key: Inode; value: true };
  content: { key: ContentId; value: ContentRecord };
  /** Bytes of small contents, with a checksum: `damaged` when they are not those that were put there. Never put. */
  inline: { key: ContentId; value: Uint8Array | 'damaged' };
  /** Block map of a content file: one row per 512 blocks; layout in `content-store`. */
  blocks: { key: readonly [ContentId, number]; value: Uint8Array };
  /** Which content holds a version. */
  version: { key: VersionUrl; value: ContentId };
  intent: { key: IntentId; value: IntentRecord };
  /** Contents with no references left, to be collected: survives a crash between the record and the removal of the file. */
  garbage: { key: ContentId; value: true };
  /** By an address that no node has. */
  departed: { key: ResourceUrl; value: DepartedRecord };
}

export type TableName = keyof Tables;
export type ScannedTable = {
  [T in TableName]: Tables[T]['key'] extends readonly [unknown, unknown] ? T : never;
}[TableName];
export type FirstOf<T extends ScannedTable> = Tables[T]['key'] extends readonly [infer First, unknown] ? First : never;
export type SecondOf<T extends ScannedTable> = Tables[T]['key'] extends readonly [unknown, infer Second]
  ? Second
  : never;

/** Reads see everything that was committed, whether LMDB has taken it over yet or not. All synchronous. */
export interface StoreReader {
  get<T extends TableName>(table: T, key: Tables[T]['key']): Tables[T]['value'] | undefined;
  /** All rows whose key starts with `first`, ordered by the second member (strings: UTF-8 bytes; numbers ascending), from `after` (exclusive) on. */
  scan<T extends ScannedTable>(
    table: T,
    first: FirstOf<T>,
    after?: SecondOf<T>,
  ): Iterable<readonly [SecondOf<T>, Tables[T]['value']]>;
  /** All rows of a table in key order, from `after` (exclusive) on: for starts, checks and `cfs status`, never in the path of an operation. */
  all<T extends TableName>(
    table: T,
    after?: Tables[T]['key'],
  ): Iterable<readonly [Tables[T]['key'], Tables[T]['value']]>;
}

/** A change in the making: reads see its own writes. Only inside `Store.transact`. */
export interface Transaction extends StoreReader {
  put<T extends TableName>(table: T, key: Tables[T]['key'], value: Tables[T]['value']): void;
  remove<T extends TableName>(table: T, key: Tables[T]['key']): void;
  /** The next number of a persisted counter; never given twice, also not after a crash. */
  nextId(counter: 'inode' | 'content' | 'intent'): number;
  /** Runs `effect` once the record is in the journal, in order of asking; never when the change fails. It must not throw. */
  afterCommit(effect: () => void): void;
}

export type ChangeKind = 'made' | 'learnt' | 'freeing';

/** The journal, LMDB and the overlay behind one door (`store/environment`). One writer: the thread that opened it. */
export interface StoreWriter extends StoreReader {
  /** Grows with each change. While it stays the same, every read gives the same result. */
  readonly changes: number;
  /**
   * Runs `change` synchronously and appends what it wrote as one journal record: all of it survives SIGKILL from the moment
   * this returns, or (when `change` throws, or the journal cannot be written) none of it happened. Not nested.
   *
   * @param kind `learnt`: the service said so and will say so again. Where no record can be written (a full or a read-only disk), what was
   *   learnt stays in memory and is written with the next record, so that what is not here can be read all the same. `freeing`: a deletion
   *   or an eviction, which may use the end of a journal file that other changes leave free
   * @throws StorageError full when the record cannot be kept
   */
  transact<R>(change: (tx: Transaction) => R, kind?: ChangeKind): R;
  /** Everything committed so far survives a power cut once this resolves (fdatasync of the journal, in the pool). */
  sync(): Promise<void>;
}
