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
import { YOUNG_MS, youngTime } from '../store/service-time.ts';
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
 * What the service says now → what becomes of our nodes. Pure: reads a view, returns changes.
 *
 * Three-way per attribute (exists, parent, name, content), the previous remote facet being the base. What changed on one side
 * only is taken; what changed on both stays ours in the local facet while the remote facet learns theirs, so that the node is
 * dirty and the sync settles it. Resources are matched by URL: a rename elsewhere is a rename here.
 */

/** What a merge may look at. All answers are those of one moment. */
export interface MergeView {
  readonly names: Names;
  /** Owner of what comes from the service. */
  readonly owner: { readonly uid: number; readonly gid: number };
  /** Permission bits that it does not get. */
  readonly umask: number;
  node(ino: Inode): NodeRecord | undefined;
  byResource(resource: ResourceUrl): NodeRecord | undefined;
  child(parent: Inode, name: string): NodeRecord | undefined;
  /** Whether this listing says anything about the node (`PushMarks.mayJudge`). */
  mayJudge(ino: Inode): boolean;
  /** Whether a resource that no node has is somebody else's (`PushMarks.strangers`). */
  isStranger(entry: RemoteEntry): boolean;
  newInode(): Inode;
  /** What was set here on a node of this address, which is gone. */
  departed(resource: ResourceUrl): DepartedRecord | undefined;
  /** Whether a program has the node open: it keeps the name by which that program knows it. */
  isOpen(ino: Inode): boolean;
  /** Whether all bytes of a content are on this machine. */
  isHere(content: ContentId): boolean;
  /** What a copy of a file is called; `isHeld`: names that it cannot have. */
  conflictName(name: string, isHeld: (name: string) => boolean): string;
  /** Whether somebody else changed something in the last minutes, as far as listings told. */
  readonly othersAtWork: boolean;
}

/** One folder's listing. `complete`: all its entries are there, so that a missing one means something. */
export interface Listing {
  readonly folder: Inode;
  readonly entries: ReadonlyMap<ResourceUrl, RemoteEntry>;
  readonly complete: boolean;
  readonly requestedMs: number;
  /** The service's clock when it answered; null when not told. */
  readonly serverTimeMs: number | null;
}

export interface NodeChange {
  readonly before: NodeRecord | undefined;
  /** Both facets null: the node is gone. */
  readonly after: NodeRecord;
}

export interface MergePlan {
  /** To be written in this order. */
  readonly changes: readonly NodeChange[];
  /** Entries whose name is held by a node that the listing lacks: to be merged when it is known what became of that one. */
  readonly postponed: readonly RemoteEntry[];
  /** Files of which the service has lost the newest version; `copy` holds it, where all of it was here. */
  readonly takenBack: readonly TakenBack[];
  /** Folders of ours that turned out to exist there too: their listing is not known. */
  readonly unlisted: readonly Inode[];
}

/** Merges `batch`, which is part of `listing`. May also merge entries outside the batch, where names change hands. */
export function mergeEntries(view: MergeView, listing: Listing, batch: Iterable<RemoteEntry>): MergePlan {
  const merge = new Merge(view, listing);
  for (const entry of batch) merge.entry(entry);
  return merge;
}

/** Whether the absence of `child` from a complete listing of its folder is a question: it is known there, and not listed. */
export function isMissing(view: Pick<MergeView, 'mayJudge'>, listing: Listing, child: NodeRecord): boolean {
  return (
    child.remote !== null &&
    child.remote.parent === listing.folder &&
    !listing.entries.has(child.remote.resource) &&
    view.mayJudge(child.ino)
  );
}

class Merge implements MergePlan {
  readonly #view: MergeView;
  readonly #listing: Listing;

  readonly changes: NodeChange[] = [];
  readonly postponed: RemoteEntry[] = [];
  readonly unlisted: Inode[] = [];
  readonly takenBack: TakenBack[] = [];

  /** What the changes so far have made of the view. */
  readonly #nodes = new Map<Inode, NodeRecord>();
  readonly #dentries = new Map<string, Inode | null>();
  readonly #resources = new Map<ResourceUrl, Inode>();
  readonly #seen = new Set<ResourceUrl>();
  /** Nodes that are about to leave their names. */
  readonly #leaving = new Set<Inode>();
  /** The names that the service has for the entries. */
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

  /** A resource that no node has. */
  #appear(entry: RemoteEntry): void {
    if (!this.#view.isStranger(entry)) return;
    const { folder } = this.#listing;
    const kind = kindOf(entry);
    const plain = this.#view.names.toFileName(entry.name);
    const holder = this.#child(folder, plain);
    if (holder !== undefined && holder.remote === null && !holder.localOnly && holder.kind === kind) {
      // Created here and there. Two folders are one; of two files ours becomes the next version of theirs, and the sync
      // finds the foreign version in the history and puts it beside ours.
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
    if ((node.kind === 'folder') !== (entry.kind === 'folder')) return; // an address is of one thing for ever
    if (node.ino === folder) return; // nothing lies in itself
    const moved = base.parent !== folder;
    const renamed = base.name !== entry.name;
    const { local } = node;

    if (local === null) {
      if (!isRewritten(base, entry)) {
        // Deleted here; there only the name is another. What is to go is what was deleted.
        if (moved || renamed) {
          const shownAs = this.#view.names.toFileName(entry.name);
          this.#put(node, { ...node, remote: this.#remoteOf(entry, shownAs, base) });
        }
        return;
      }
      const given = this.#nameFor(entry, node.ino);
      if (given === null) return;
      this.#restore(folder);
      const local = this.#localOf(entry, node.kind, given);
      const remote = this.#remoteOf(entry, given, base);
      // Whoever has the deleted one open keeps it as it is: without a name, and another file than this.
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
        // Renamed here, moved there: our name comes along, as far as it is free.
        if (movesHere && this.#isHeld(folder, name, node.ino)) {
          name = this.#view.names.distinct(name, (candidate) => this.#isHeld(folder, candidate, node.ino));
        }
      }
      if (movesHere) this.#restore(folder);
    } else if (this.#isMisnamed(node, base, entry)) {
      // A passing clash is over, or the service gave it another name than was asked for. Where the new name is not free yet, a later
      // listing gives it.
      if (this.#nameOnLeaving(entry, node.ino) === this.#nameByListing(entry)) {
        shownAs = this.#nameByListing(entry);
        name = shownAs;
      }
    }

    const told = this.#remoteOf(entry, shownAs, base);
    // What was acknowledged and did not arrive stays ours, and is sent as the next version; what is there instead is not its base.
    const lost = !isContentDirty(node) && isNotArrived(base, entry);
    const kept = lost ? { ...base, content: null } : isContentDirty(node) ? base : null;
    const remote = kept === null ? told : withBytesOf(kept, told);
    const theirs = this.#bytesOf(entry);
    const takesBytes = kept === null && isRewritten(base, entry);
    const takesPlace = parent !== local.parent || name !== local.name;
    if (isSame(base, remote) && !takesPlace && !takesBytes) return;
    const bytes = takesBytes ? { ...theirs, ctime: timespecOfMs(this.#listing.requestedMs) } : {};
    const after = takesPlace || takesBytes ? { ...local, ...bytes, parent, name } : local;
    this.#put(node, { ...node, local: after, remote });
    if (takesBytes && isTakenBack(base, entry)) this.#keepTakenBack(node, local);
  }

  /** The service has lost the version that is here: it becomes a file beside the older one. */
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
   * Somebody moved `moved` into `folder`, which was moved into `moved` here, or above it: theirs stands, and what was moved here
   * goes back to where the service has it. Both trees stay whole.
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
      if (this.#node(remote.parent)?.local == null) continue; // gone meanwhile: so is, perhaps, what lay in it
      this.#put(node, { ...node, local: { ...local, parent: remote.parent, name } });
    }
  }

  /**
   * The file name of `entry` in the listed folder: the one that the listing gives it where that is free, or can be made free; else with a
   * number until a later listing finds it free. Null: not to be said yet (and the entry is postponed).
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
        // The holder is to have another name as well: it leaves first. A circle ends at a node that is leaving already.
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

  /** As `nameFor`, for a node that leaves the name that it has. */
  #nameOnLeaving(entry: RemoteEntry, self: Inode): string | null {
    this.#leaving.add(self);
    const given = this.#nameFor(entry, self);
    this.#leaving.delete(self);
    return given;
  }

  /**
   * Whether a node is where the service has it, under another name than every machine is to show for it. One that a program has open keeps
   * its name until it is closed, one with a change that is not acknowledged until it is.
   */
  #isMisnamed(node: NodeRecord, remote: RemoteFacet, entry: RemoteEntry): boolean {
    const { local } = node;
    if (local === null || !this.#listing.complete || isDirty(node) || remote.parent !== this.#listing.folder)
      return false;
    if (this.#nameByListing(entry, local.name) === local.name) return false;
    return this.#view.mayJudge(node.ino) && !this.#view.isOpen(node.ino);
  }

  /**
   * The file name that a complete listing gives to `entry`, the same on every machine: of several entries with one name the first by address
   * has that, the others have numbers. `shown`: what it is called now; without a clash of names the listing is not looked through.
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
        // A number avoids the plain names of the whole listing, so that none of them needs one because of this.
        const number = this.#view.names.distinct(plain, (other) => given.has(other) || this.#isListed(other));
        given.add(number);
        numbers.set(url, number);
      }
    }
    numbersOf.set(entries, numbers);
    return numbers;
  }

  /** Whether it is the plain file name of an entry. */
  #isListed(fileName: string): boolean {
    const { names } = this.#view;
    this.#listed ??= new Set([...this.#listing.entries.values()].map(({ name }) => name));
    return this.#listed.has(names.toRemoteName(fileName));
  }

  #isFree(name: string, self: Inode | null): boolean {
    return this.#holderOf(name, self) === undefined;
  }

  /** Another node that has the name in the listed folder, and is not about to leave it. */
  #holderOf(name: string, self: Inode | null): NodeRecord | undefined {
    const holder = this.#child(this.#listing.folder, name);
    return holder === undefined || holder.ino === self || this.#leaving.has(holder.ino) ? undefined : holder;
  }

  #postpone(entry: RemoteEntry): null {
    if (!this.postponed.includes(entry)) this.postponed.push(entry);
    this.#seen.delete(entry.url);
    return null;
  }

  /** Brings back a folder that was deleted here, and those above it: something in it is there again. */
  #restore(ino: Inode): void {
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

  /** The remote facet that `entry` tells of; what it does not tell stays as in `base`, unless the bytes are others. */
  #remoteOf(entry: RemoteEntry, shownAs: string, base: RemoteFacet | null): RemoteFacet {
    const young = this.#isYoung(entry);
    const rewritten = base === null || isRewritten(base, entry);
    const toldMs = entry.kind === 'file' ? entry.lastModifiedMs : null;
    // The time of bytes that we pushed ourselves is simply confirmed; one that others made is trusted when it has aged.
    const lastModifiedMs = toldMs === null ? null : rewritten && young ? youngTime(toldMs) : toldMs;
    return {
      resource: entry.url,
      parent: this.#listing.folder,
      name: entry.name,
      shownAs,
      sizeBytes: sizeOf(entry),
      lastModifiedMs: rewritten
        ? lastModifiedMs
        : keptTime(base, lastModifiedMs, { young, othersAtWork: this.#view.othersAtWork }),
      mediaType: entry.kind === 'file' ? (entry.mediaType ?? base?.mediaType ?? null) : null,
      content: rewritten ? null : base.content,
      createdHereMs: rewritten ? null : base.createdHereMs,
      ...(base?.nameBefore !== undefined && base.name === entry.name && { nameBefore: base.nameBefore }),
    };
  }

  #isYoung(entry: RemoteEntry): boolean {
    const { serverTimeMs } = this.#listing;
    if (entry.kind === 'folder' || entry.lastModifiedMs === null || serverTimeMs === null) return false;
    return serverTimeMs - entry.lastModifiedMs < YOUNG_MS;
  }

  #isHeld(parent: Inode, name: string, self: Inode | null): boolean {
    const holder = this.#child(parent, name);
    return holder !== undefined && holder.ino !== self;
  }

  /** Whether `ino` lies in `ancestor`, or is it, as users see the tree. */
  #isWithin(ino: Inode, ancestor: Inode): boolean {
    return liesIn(this.#reader, ino, ancestor);
  }

  #node(ino: Inode): NodeRecord | undefined {
    return this.#nodes.get(ino) ?? this.#view.node(ino);
  }

  #child(parent: Inode, name: string): NodeRecord | undefined {
    const ino = this.#dentries.get(`${parent}/${name}`);
    if (ino === null) return undefined;
    return ino === undefined ? this.#view.child(parent, name) : this.#node(ino);
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

/** Numbers of entries that share a name with others, by listing: a large one is merged in many parts. */
const numbersOf = new WeakMap<Listing['entries'], ReadonlyMap<ResourceUrl, string>>();

/** Nodes that leave their names for one that is to have the name of the first. */
const CHAIN_MAX = 1_000;

/** Deeper than any path; a loop in damaged records ends here. */
const DEPTH_MAX = 4096;

/** What the service had when bytes were made here under a name that it had no bytes for. */
const NO_BYTES = { sizeBytes: null, lastModifiedMs: null, content: null, createdHereMs: null } as const;

function isSame(a: RemoteFacet, b: RemoteFacet): boolean {
  for (const key of Object.keys(b) as (keyof RemoteFacet)[]) if (a[key] !== b[key]) return false;
  return true;
}
