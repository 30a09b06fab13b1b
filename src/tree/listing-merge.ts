import type { RemoteEntry } from '../base/resources.ts';
import {
  type ContentId,
  type Inode,
  type NodeKind,
  type ResourceUrl,
  ROOT_INODE,
  timespecOfMs,
} from '../base/vocabulary.ts';
import { deletedAbove, isContentDirty, isDirty, liesIn } from '../store/node-table.ts';
import { isSameServiceTime, needsHistory, RACY_MS, reportedTime } from '../store/service-time.ts';
import type { DepartedRecord, LocalFacet, NodeRecord, RemoteFacet } from '../store/tables.ts';
import type { Names } from './names.ts';
import {
  asItWas,
  isNotArrived,
  isRewritten,
  isTakenBack,
  keptTime,
  kindOf,
  modeOf,
  sizeOf,
  type TakenBack,
  withBytesOf,
} from './remote-entry.ts';

/**
 * Plans the changes of nodes for one listing. Pure: reads a view, returns changes.
 *
 * Three-way merge per attribute (exists, parent, name, content) with the previous remote facet as the base. A change on
 * one side is taken. After changes on both sides, the local facet keeps ours and the remote facet takes theirs, so that
 * the node is dirty and the sync resolves it. Resources are matched by URL: a remote rename is a rename here.
 */

/** The state that a merge reads; a consistent snapshot. */
export interface MergeView {
  readonly names: Names;
  /** Owner of new nodes from the service. */
  readonly owner: { readonly uid: number; readonly gid: number };
  /** Permission bits to clear. */
  readonly umask: number;
  node(ino: Inode): NodeRecord | undefined;
  byResource(resource: ResourceUrl): NodeRecord | undefined;
  child(parent: Inode, name: string): NodeRecord | undefined;
  /** Whether a folder stands for the trash of the service (`store/local-trash`). */
  isTrash(folder: Inode): boolean;
  /** Whether the listing is valid for the node (`ListingFence.mayJudge`). */
  mayJudge(ino: Inode): boolean;
  /** Whether a resource without a node was created elsewhere (`ListingFence.strangers`). */
  isStranger(entry: RemoteEntry): boolean;
  /** Whether an abandoned upload may have added a version to the resource (`store/intents`). */
  mayHoldAbandoned(resource: ResourceUrl): boolean;
  newInode(): Inode;
  /** The attributes that users had set on a removed node of this address. */
  departed(resource: ResourceUrl): DepartedRecord | undefined;
  /** Whether a program has the node open: it keeps the name by which that program knows it. */
  isOpen(ino: Inode): boolean;
  /** Whether all bytes of a content are stored locally. */
  isHere(content: ContentId): boolean;
  /** The name of a conflicted copy; `isHeld`: names that are taken. */
  conflictName(name: string, isHeld: (name: string) => boolean): string;
  /** Whether listings showed a remote change in the last minutes. */
  readonly othersAtWork: boolean;
}

/** One folder's listing. `complete`: it has all entries, so that a missing one is significant. */
export interface Listing {
  readonly folder: Inode;
  readonly entries: ReadonlyMap<ResourceUrl, RemoteEntry>;
  readonly complete: boolean;
  readonly requestedMs: number;
  /** The service's clock at the response; null without a Date header. */
  readonly serverTimeMs: number | null;
}

export interface NodeChange {
  readonly before: NodeRecord | undefined;
  /** Both facets null: the node is removed. */
  readonly after: NodeRecord;
}

export interface MergePlan {
  /** To be applied in this order. */
  readonly changes: readonly NodeChange[];
  /** Entries whose name belongs to a node that the listing lacks: to be merged after that node is probed. */
  readonly postponed: readonly RemoteEntry[];
  /** Files whose newest version the service lost; `copy` holds it if all bytes were here. */
  readonly takenBack: readonly TakenBack[];
  /** Local folders that also exist remotely: their remote entries are not known. */
  readonly unlisted: readonly Inode[];
}

/** Merges `batch`, a part of `listing`. May also merge other entries if names change hands. */
export function mergeEntries(view: MergeView, listing: Listing, batch: Iterable<RemoteEntry>): MergePlan {
  const merge = new Merge(view, listing);
  for (const entry of batch) merge.entry(entry);
  return merge;
}

class Merge implements MergePlan {
  readonly #view: MergeView;
  readonly #listing: Listing;

  readonly changes: NodeChange[] = [];
  readonly postponed: RemoteEntry[] = [];
  readonly unlisted: Inode[] = [];
  readonly takenBack: TakenBack[] = [];

  /** The view as changed so far. */
  readonly #nodes = new Map<Inode, NodeRecord>();
  readonly #dentries = new Map<string, Inode | null>();
  readonly #resources = new Map<ResourceUrl, Inode>();
  readonly #seen = new Set<ResourceUrl>();
  /** Nodes being renamed, which release their names. */
  readonly #leaving = new Set<Inode>();
  /** The remote names of the entries. */
  #listed: Set<string> | null = null;
  readonly #reader = { get: (_table: 'node', ino: Inode) => this.#node(ino) };

  constructor(view: MergeView, listing: Listing) {
    this.#view = view;
    this.#listing = listing;
  }

  entry(entry: RemoteEntry): void {
    if (this.#seen.has(entry.url)) return;
    this.#seen.add(entry.url);
    const ino = this.#resources.get(entry.url);
    const known = ino === undefined ? this.#view.byResource(entry.url) : this.#node(ino);
    if (known === undefined) this.#appear(entry);
    else if (known.ino !== ROOT_INODE && known.remote !== null && this.#view.mayJudge(known.ino)) {
      this.#update(known, known.remote, entry);
    }
  }

  /** An entry whose resource has no node. */
  #appear(entry: RemoteEntry): void {
    if (!this.#view.isStranger(entry)) return;
    const { folder } = this.#listing;
    const kind = kindOf(entry);
    const plain = this.#view.names.toFileName(entry.name);
    const holder = this.#child(folder, plain);
    if (holder !== undefined && holder.remote === null && !holder.localOnly && holder.kind === kind) {
      // Created on both sides. Two folders are merged. Of two files, ours becomes the next version of theirs; the sync
      // finds the foreign version in the history and stores it as a copy beside ours.
      if (!this.#view.mayJudge(holder.ino)) return;
      this.#put(holder, { ...holder, remote: withBytesOf(NO_BYTES, this.#remoteOf(entry, plain, null)) });
      if (kind === 'folder') this.unlisted.push(holder.ino);
      return;
    }
    const given = this.#nameFor(entry, null);
    if (given === null) return;
    this.#restore(folder);
    const ino = this.#view.newInode();
    const remote = this.#remoteOf(entry, given, null);
    const local = asItWas(this.#localOf(entry, kind, given), this.#view.departed(entry.url), this.#listing, entry);
    this.#put(undefined, { ino, kind, localOnly: false, local, remote });
  }

  #update(node: NodeRecord, base: RemoteFacet, entry: RemoteEntry): void {
    const { folder } = this.#listing;
    if ((node.kind === 'folder') !== (entry.kind === 'folder')) return; // the kind of a URL never changes
    if (node.ino === folder) return; // a folder cannot contain itself
    const moved = base.parent !== folder;
    const renamed = base.name !== entry.name;
    const { local } = node;

    if (local === null) {
      const mayBeOurs = this.#view.mayHoldAbandoned(base.resource) || needsHistory(base.modified);
      // Removed from the local trash, and restored elsewhere before that was pushed: it is shown again.
      const isRestored = this.#view.isTrash(base.parent);
      if (mayBeOurs || !(isRewritten(base, entry) || isRestored)) {
        // Deleted here, only renamed remotely: the deletion stands. Bytes that may be ours are left to the deletion's preflight.
        const reported = this.#remoteOf(entry, this.#view.names.toFileName(entry.name), base);
        if (moved || renamed) this.#put(node, { ...node, remote: mayBeOurs ? withBytesOf(base, reported) : reported });
        return;
      }
      const given = this.#nameFor(entry, node.ino);
      if (given === null) return;
      this.#restore(folder);
      const remote = this.#remoteOf(entry, given, base);
      const local = { ...this.#localOf(entry, node.kind, given), content: remote.content };
      // Programs that have the deleted file open keep it as a nameless file, separate from this one.
      this.#put(node, { ...node, remote: null });
      this.#put(undefined, { ...node, ino: this.#view.newInode(), local, remote });
      return;
    }

    let { parent, name } = local;
    let { shownAs } = base;
    if (moved && local.parent === base.parent) this.#giveWay(folder, node.ino);
    if (moved || renamed) {
      const movesHere = moved && local.parent === base.parent && !this.#isWithin(folder, node.ino);
      const renamesHere = renamed && local.name === base.shownAs;
      if (movesHere) parent = folder;
      if (renamesHere || (movesHere && local.name === base.shownAs)) {
        if (parent === folder) {
          const given = this.#nameOnLeaving(entry, node.ino);
          if (given === null) return;
          shownAs = given;
        } else {
          shownAs = this.#view.names.toFileName(entry.name, (other) => this.#isHeld(parent, other, node.ino));
        }
        name = shownAs;
      } else {
        if (renamed) shownAs = this.#view.names.toFileName(entry.name);
        // Renamed here, moved remotely: keep our name if it is free in the new folder.
        if (movesHere && this.#isHeld(folder, name, node.ino)) {
          name = this.#view.names.distinct(name, (candidate) => this.#isHeld(folder, candidate, node.ino));
        }
      }
      if (movesHere) this.#restore(folder);
    } else if (this.#isMisnamed(node, base, entry)) {
      // A temporary name clash is over, or the service assigned another name than requested; a later listing retries.
      if (this.#nameOnLeaving(entry, node.ino) === this.#nameByListing(entry)) {
        shownAs = this.#nameByListing(entry);
        name = shownAs;
      }
    }

    const reported = this.#remoteOf(entry, shownAs, base);
    // An acknowledged version that did not arrive stays ours and is sent as the next version.
    const lost = !isContentDirty(node) && isNotArrived(base, entry);
    const kept = lost ? { ...base, content: null } : isContentDirty(node) ? base : null;
    const remote = kept === null ? reported : withBytesOf(kept, reported);
    const theirs = this.#bytesOf(entry);
    const takesBytes = kept === null && isRewritten(base, entry);
    const takesPlace = parent !== local.parent || name !== local.name;
    if (isSame(base, remote) && !takesPlace && !takesBytes) return;
    const bytes = takesBytes ? { ...theirs, ctime: timespecOfMs(this.#listing.requestedMs) } : {};
    const after = takesPlace || takesBytes ? { ...local, ...bytes, parent, name } : local;
    this.#put(node, { ...node, local: after, remote });
    if (takesBytes && isTakenBack(base, entry)) this.#keepTakenBack(node, local);
  }

  /** The service lost the local version: it becomes a separate file beside the older one. */
  #keepTakenBack({ ino, kind, localOnly }: NodeRecord, local: LocalFacet): void {
    const { content } = local;
    let copy: Inode | null = null;
    if (content !== null && this.#view.isHere(content)) {
      copy = this.#view.newInode();
      const { parent, name } = this.#node(ino)?.local ?? local;
      const copied = this.#view.conflictName(name, (other) => this.#child(parent, other) !== undefined);
      this.#put(undefined, { ino: copy, kind, localOnly, local: { ...local, parent, name: copied }, remote: null });
    }
    this.takenBack.push({ ino, copy });
  }

  /**
   * Crossed moves: `moved` was moved into `folder` remotely, and `folder` into `moved` (or above it) here. The remote
   * move stands, and the local one is undone, so that both trees stay acyclic.
   */
  #giveWay(folder: Inode, moved: Inode): void {
    for (let at = folder, depth = 0; depth < DEPTH_MAX && this.#isWithin(folder, moved) && at !== moved; depth++) {
      const node = this.#node(at);
      if (node?.local == null) return;
      const { local, remote } = node;
      at = local.parent;
      if (remote === null || local.parent === remote.parent || this.#isWithin(remote.parent, node.ino)) continue;
      const taken = (name: string): boolean => this.#isHeld(remote.parent, name, node.ino);
      const name = taken(remote.shownAs) ? this.#view.names.distinct(remote.shownAs, taken) : remote.shownAs;
      this.#restore(remote.parent);
      if (this.#node(remote.parent)?.local == null) continue; // deleted meanwhile, perhaps with its contents
      this.#put(node, { ...node, local: { ...local, parent: remote.parent, name } });
    }
  }

  /**
   * The file name of `entry` in the listed folder: the name by the listing if it is free or can be freed; otherwise
   * with a number, until a later listing finds it free. Null: not known yet (the entry is postponed).
   */
  #nameFor(entry: RemoteEntry, self: Inode | null): string | null {
    const { folder, entries, complete } = this.#listing;
    const plain = this.#view.names.toFileName(entry.name);
    if (this.#isFree(plain, self) && this.#nameByListing(entry, plain) === plain) return plain;
    const wanted = this.#nameByListing(entry);
    const holder = this.#holderOf(wanted, self);
    if (holder?.remote != null) {
      const { ino, local, remote } = holder;
      const listed = entries.get(remote.resource);
      const isRenamed = remote.parent === folder && local?.name === remote.shownAs && listed?.name !== remote.name;
      if (listed !== undefined && (isRenamed || this.#isMisnamed(holder, remote, listed))) {
        // The holder gets another name as well: rename it first. A cycle ends at a node that is already releasing its
        // name.
        if (this.#leaving.size < CHAIN_MAX) {
          this.#seen.delete(listed.url);
          this.entry(listed);
        }
        if (isRenamed && this.#child(folder, wanted)?.ino === ino) return this.#postpone(entry);
      } else if (listed === undefined && complete && remote.parent === folder) {
        return this.#postpone(entry);
      }
    }
    if (this.#isFree(wanted, self)) return wanted;
    return this.#view.names.distinct(plain, (other) => this.#isListed(other) || this.#isHeld(folder, other, self));
  }

  /** As `nameFor`, for a node that releases its current name. */
  #nameOnLeaving(entry: RemoteEntry, self: Inode): string | null {
    this.#leaving.add(self);
    const given = this.#nameFor(entry, self);
    this.#leaving.delete(self);
    return given;
  }

  /**
   * Whether a node is in its remote folder, but under another name than all machines should show. An open file keeps
   * its name until it is closed, a node with an unacknowledged change until that is acknowledged.
   */
  #isMisnamed(node: NodeRecord, remote: RemoteFacet, entry: RemoteEntry): boolean {
    const { local } = node;
    if (local === null || !this.#listing.complete || isDirty(node) || remote.parent !== this.#listing.folder)
      return false;
    if (this.#nameByListing(entry, local.name) === local.name) return false;
    return this.#view.mayJudge(node.ino) && !this.#view.isOpen(node.ino);
  }

  /**
   * The file name of `entry` by a complete listing, the same on every machine: of entries with one name, the first by
   * URL keeps it and the others get numbers. `shown`: the current name; without a name clash the listing is not
   * scanned.
   */
  #nameByListing(entry: RemoteEntry, shown?: string): string {
    const plain = this.#view.names.toFileName(entry.name);
    const { entries, complete } = this.#listing;
    if (!complete || (shown === plain && !numbersOf.has(entries))) return plain;
    return this.#numbers().get(entry.url) ?? plain;
  }

  #numbers(): ReadonlyMap<ResourceUrl, string> {
    const { entries } = this.#listing;
    const known = numbersOf.get(entries);
    if (known !== undefined) return known;
    const repeated = new Map<string, ResourceUrl[]>();
    const firsts = new Map<string, ResourceUrl>();
    for (const { url, name } of entries.values()) {
      const first = firsts.get(name);
      if (first === undefined) firsts.set(name, url);
      else repeated.set(name, [...(repeated.get(name) ?? [first]), url]);
    }
    const numbers = new Map<ResourceUrl, string>();
    const given = new Set<string>();
    for (const name of [...repeated.keys()].sort()) {
      const plain = this.#view.names.toFileName(name);
      for (const url of repeated.get(name)?.sort().slice(1) ?? []) {
        // Avoid the plain names of the whole listing, so that the number causes no further clash.
        const number = this.#view.names.distinct(plain, (other) => given.has(other) || this.#isListed(other));
        given.add(number);
        numbers.set(url, number);
      }
    }
    numbersOf.set(entries, numbers);
    return numbers;
  }

  /** Whether an entry has this plain file name. */
  #isListed(fileName: string): boolean {
    const { names } = this.#view;
    this.#listed ??= new Set([...this.#listing.entries.values()].map(({ name }) => name));
    return this.#listed.has(names.toRemoteName(fileName));
  }

  #isFree(name: string, self: Inode | null): boolean {
    return this.#holderOf(name, self) === undefined;
  }

  /** Another node with that name in the listed folder, unless it is about to release it. */
  #holderOf(name: string, self: Inode | null): NodeRecord | undefined {
    const holder = this.#child(this.#listing.folder, name);
    return holder === undefined || holder.ino === self || this.#leaving.has(holder.ino) ? undefined : holder;
  }

  #postpone(entry: RemoteEntry): null {
    if (!this.postponed.includes(entry)) this.postponed.push(entry);
    this.#seen.delete(entry.url);
    return null;
  }

  /** Restores a folder that was deleted here, with its ancestors, because an entry in it reappeared. */
  #restore(ino: Inode): void {
    if (this.#node(ino)?.local != null) return;
    for (const { node, remote, parent } of deletedAbove(this.#reader, ino)) {
      const { shownAs } = remote;
      const name = this.#isHeld(parent, shownAs, node.ino)
        ? this.#view.names.distinct(shownAs, (candidate) => this.#isHeld(parent, candidate, node.ino))
        : shownAs;
      const time = timespecOfMs(this.#listing.requestedMs);
      this.#put(node, {
        ...node,
        local: {
          parent,
          name,
          mode: modeOf('folder', this.#view.umask),
          ...this.#view.owner,
          atime: time,
          mtime: time,
          ctime: time,
          xattrs: null,
          content: null,
          sizeBytes: 0,
        },
        remote: { ...remote, shownAs: name },
      });
    }
  }

  #localOf(entry: RemoteEntry, kind: NodeKind, name: string): LocalFacet {
    const bytes = this.#bytesOf(entry);
    const mode = modeOf(kind, this.#view.umask);
    const parent = this.#listing.folder;
    return { parent, name, mode, ...this.#view.owner, atime: bytes.mtime, ctime: bytes.mtime, xattrs: null, ...bytes };
  }

  #bytesOf(entry: RemoteEntry): Pick<LocalFacet, 'content' | 'sizeBytes' | 'mtime'> {
    const mtimeMs = entry.kind === 'file' ? entry.lastModifiedMs : null;
    return { content: null, sizeBytes: sizeOf(entry) ?? 0, mtime: timespecOfMs(mtimeMs ?? this.#listing.requestedMs) };
  }

  /** The remote facet from `entry`. Missing fields are taken from `base`, unless the bytes differ. */
  #remoteOf(entry: RemoteEntry, shownAs: string, base: RemoteFacet | null): RemoteFacet {
    const isRacy = this.#isRacy(entry);
    const rewritten = base === null || isRewritten(base, entry);
    const reportedMs = entry.kind === 'file' ? entry.lastModifiedMs : null;
    const { othersAtWork } = this.#view;
    return {
      resource: entry.url,
      parent: this.#listing.folder,
      name: entry.name,
      shownAs,
      sizeBytes: sizeOf(entry),
      modified: rewritten
        ? reportedTime(reportedMs, isRacy ? 'racy' : 'exact')
        : keptTime(base, reportedMs, { isRacy, othersAtWork }),
      mediaType: entry.kind === 'file' ? (entry.mediaType ?? base?.mediaType ?? null) : null,
      content: rewritten ? null : base.content,
      createdHereMs: rewritten ? null : base.createdHereMs,
      ...(base?.nameBefore !== undefined && base.name === entry.name && { nameBefore: base.nameBefore }),
    };
  }

  #isRacy(entry: RemoteEntry): boolean {
    const { serverTimeMs } = this.#listing;
    if (entry.kind === 'folder' || entry.lastModifiedMs === null || serverTimeMs === null) return false;
    return serverTimeMs - entry.lastModifiedMs < RACY_MS;
  }

  #isHeld(parent: Inode, name: string, self: Inode | null): boolean {
    const holder = this.#child(parent, name);
    return holder !== undefined && holder.ino !== self;
  }

  /** Whether `ino` is `ancestor` or a descendant, in the local tree. */
  #isWithin(ino: Inode, ancestor: Inode): boolean {
    return liesIn(this.#reader, ino, ancestor);
  }

  #node(ino: Inode): NodeRecord | undefined {
    return this.#nodes.get(ino) ?? this.#view.node(ino);
  }

  #child(parent: Inode, name: string): NodeRecord | undefined {
    const key = `${parent}/${name}`;
    const ino = this.#dentries.get(key);
    if (ino === null) return undefined;
    if (ino !== undefined) return this.#node(ino);
    const child = this.#view.child(parent, name);
    // A new name is looked up several times.
    if (child === undefined) this.#dentries.set(key, null);
    return child;
  }

  #put(before: NodeRecord | undefined, after: NodeRecord): void {
    this.changes.push({ before, after });
    this.#nodes.set(after.ino, after);
    if (after.remote !== null) this.#resources.set(after.remote.resource, after.ino);
    const was = before?.local;
    if (was != null && this.#child(was.parent, was.name)?.ino === after.ino) {
      this.#dentries.set(`${was.parent}/${was.name}`, null);
    }
    if (after.local !== null) this.#dentries.set(`${after.local.parent}/${after.local.name}`, after.ino);
  }
}

/** Numbers of entries with a name clash, by listing: a large one is merged in many batches. */
const numbersOf = new WeakMap<Listing['entries'], ReadonlyMap<ResourceUrl, string>>();

/** Limit of a chain of renames that frees one name. */
const CHAIN_MAX = 1_000;

/** Deeper than any path; stops at a cycle in damaged records. */
const DEPTH_MAX = 4096;

/** Remote bytes of a file created here under an unused name. */
const NO_BYTES = { sizeBytes: null, modified: null, content: null, createdHereMs: null } as const;

function isSame(a: RemoteFacet, b: RemoteFacet): boolean {
  for (const key of Object.keys(b) as (keyof RemoteFacet)[]) if (key !== 'modified' && a[key] !== b[key]) return false;
  return isSameServiceTime(a.modified, b.modified);
}
