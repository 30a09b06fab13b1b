/** The types behind the project's nouns. docs/glossary.md defines every term; other files use its words and no others. */

declare const brand: unique symbol;
type Branded<T, Name extends string> = T & { readonly [brand]: Name };

/** Local identity of a node, 1 … 2^53-1; also the node id the kernel holds. */
export type Inode = Branded<number, 'Inode'>;

/** Identity of a content in the local store; persisted, never reused. */
export type ContentId = Branded<number, 'ContentId'>;

/** Identity of an operation that was begun on the service; persisted, never reused. */
export type IntentId = Branded<number, 'IntentId'>;

/** Index of a block within its content. */
export type BlockIndex = Branded<number, 'BlockIndex'>;

/** URL of a folder or file on the service: the identity by which resources are matched. Opaque. */
export type ResourceUrl = Branded<string, 'ResourceUrl'>;

/** URL of one version of a file on the service. Opaque. */
export type VersionUrl = Branded<string, 'VersionUrl'>;

/** Handle number given to the kernel for one open(2) or opendir(2). */
export type HandleId = Branded<number, 'HandleId'>;

/** A byte range of a content or file: [start, end), start ≤ end. */
export interface Extent {
  readonly start: number;
  readonly end: number;
}

/** A point in time with the kernel's precision: seconds since the epoch (may be negative) and 0 … 999,999,999 nanoseconds. */
export interface Timespec {
  readonly sec: number;
  readonly nsec: number;
}

/** Rendezvous points of local processes: they hold no bytes and exist on this machine only. */
export type SpecialKind = 'fifo' | 'socket';

export type NodeKind = 'file' | 'folder' | 'symlink' | SpecialKind;

export function isSpecial(kind: NodeKind): kind is SpecialKind {
  return kind === 'fifo' || kind === 'socket';
}

/** The inode of the mount's root; FUSE_ROOT_ID of the kernel's protocol (linux/fuse.h). */
export const ROOT_INODE = 1 as Inode;

/** Length of a block, the unit of fetching, caching, checksums and eviction. */
export const BLOCK_BYTES = 128 * 1024;

/** Milliseconds since the epoch as a Timespec. */
export function timespecOfMs(ms: number): Timespec {
  const sec = Math.floor(ms / 1000);
  return { sec, nsec: Math.round((ms - sec * 1000) * 1e6) };
}

export function laterOf(one: Timespec, other: Timespec): Timespec {
  return one.sec > other.sec || (one.sec === other.sec && one.nsec > other.nsec) ? one : other;
}

export function isSameTime(one: Timespec, other: Timespec): boolean {
  return one.sec === other.sec && one.nsec === other.nsec;
}

/** Whole milliseconds since the epoch, rounded down. */
export function msOfTimespec(time: Timespec): number {
  return time.sec * 1000 + Math.floor(time.nsec / 1e6);
}
