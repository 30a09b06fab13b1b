/**
 * The nouns of this project. One word for one thing; every other file uses these words and no others.
 *
 * inode     local identity of a file, folder or symlink; persisted, never reused. It *is* the node id given to the kernel.
 * dentry    (parent, name) → inode.
 * node      the stored record of an inode: its two facets.
 * special   a FIFO or unix socket: a name on this machine only, without bytes.
 * facet     the *local* facet is what users see; the *remote* facet is what the service last told us.
 * dirty     the two facets differ.
 * version   an immutable revision of a file's bytes, named by the service.
 * content   a row of bytes with an identity: either a version's or a draft's.
 * draft     the content that is to become the next version: changed ranges over a base content.
 * sealed    a content that is never overwritten again (a version, a frozen draft).
 * block     an aligned piece of a content, BLOCK_BYTES long (the last one of a content may be shorter).
 * extent    [start, end) in bytes.
 * lease     a claim that keeps cached blocks from eviction.
 * handle    one open(2).
 * upload session  the service's half-arrived version.
 * listing   one folder's contents as the service told them, with the sequence number of its request.
 * parked    a change that retrying cannot help, kept and shown until someone acts.
 * settle    the pause after the last change before a change is pushed.
 * agenda    which dirty nodes are to be decided about and when, and which may be pushed now.
 * drain     push everything, or put it down safely.
 * look      a listing that a push waits for: is the place still there that it goes into?
 * gone      of a node: the service does not have its resource any more, where we look; it may be kept here for now.
 * address   where a resource is asked for: its URL, which the service may replace by a new one.
 * reserve   the part of its disk that `cfs serve` leaves free.
 */

declare const brand: unique symbol;
type Branded<T, Name extends string> = T & { readonly [brand]: Name };

/** Local identity of a node, 1 … 2^53-1; also the node id the kernel holds. */
export type Inode = Branded<number, 'Inode'>;

/** Identity of a content in the local store; persisted, never reused. */
export type ContentId = Branded<number, 'ContentId'>;

/** Index of a block within its content. */
export type BlockIndex = Branded<number, 'BlockIndex'>;

/** URL of a folder or file on the service: the identity by which resources are matched. Opaque. */
export type ResourceUrl = Branded<string, 'ResourceUrl'>;

/** URL of one version of a file on the service. Opaque. */
export type VersionUrl = Branded<string, 'VersionUrl'>;

/** Handle number given to the kernel for one open(2) or opendir(2). */
export type HandleId = Branded<number, 'HandleId'>;

/** A row of bytes of a content or file: [start, end), in bytes, start ≤ end. */
export interface Extent {
  readonly start: number;
  readonly end: number;
}

/** A moment with the kernel's precision: seconds since the epoch (may be negative) and 0 … 999,999,999 nanoseconds. */
export interface Timespec {
  readonly sec: number;
  readonly nsec: number;
}

/** Names of processes' meeting points: they hold no bytes, and mean nothing on another machine. */
export type SpecialKind = 'fifo' | 'socket';

export type NodeKind = 'file' | 'folder' | 'symlink' | SpecialKind;

export function isSpecial(kind: NodeKind): kind is SpecialKind {
  return kind === 'fifo' || kind === 'socket';
}

/** The inode of the mount's root; FUSE_ROOT_ID of the kernel's protocol (linux/fuse.h). */
export const ROOT_INODE = 1 as Inode;

/** Length of a block: what is fetched, cached, marked and evicted as one piece. */
export const BLOCK_BYTES = 128 * 1024;

/** Milliseconds since the epoch as a Timespec. */
export function timespecOfMs(ms: number): Timespec {
  const sec = Math.floor(ms / 1000);
  return { sec, nsec: Math.round((ms - sec * 1000) * 1e6) };
}

export function laterOf(one: Timespec, other: Timespec): Timespec {
  return one.sec > other.sec || (one.sec === other.sec && one.nsec > other.nsec) ? one : other;
}

/** Whole milliseconds since the epoch, rounded down. */
export function msOfTimespec(time: Timespec): number {
  return time.sec * 1000 + Math.floor(time.nsec / 1e6);
}
