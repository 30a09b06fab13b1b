import { hostname } from 'node:os';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { RemoteEntry, RemoteResource } from '../base/resources.ts';
import {
  type Inode,
  isSameTime,
  type NodeKind,
  type ResourceUrl,
  ROOT_INODE,
  timespecOfMs,
} from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { isWhole } from '../bytes/whole-content.ts';
import { departedAttributes, departedWeight, forgetOldDeparted, keepDeparted } from '../store/departed-attributes.ts';
import type { Intents } from '../store/intents.ts';
import { isTrashFolder } from '../store/local-trash.ts';
import { childOf, isDirty, isSuspect, newInode, writeNode } from '../store/node-table.ts';
import { PINS_MAX, pinnedNodes, writePinnedNodes } from '../store/pinned-nodes.ts';
import type { DepartedRecord, FileBytes, NodeRecord, RemoteFacet, StoreWriter, Transaction } from '../store/tables.ts';
import { conflictName } from './conflict-name.ts';
import type { ListingFence } from './listing-fence.ts';
import { type Listing, type MergePlan, type MergeView, mergeEntries, type NodeChange } from './listing-merge.ts';
import { isEmpty } from './live-folder.ts';
import { noteLocalFolders } from './local-folders.ts';
import type { MergedAhead } from './merged-ahead.ts';
import type { Names } from './names.ts';
import { type ReceivedChange, receivedChanges } from './received-changes.ts';
import { type OpenHere, type RemoteDeletionOutcome, RemoteDeletions } from './remote-deletions.ts';
import { modeOf } from './remote-entry.ts';

/** A node missing from a complete listing: its URL must be probed before it is changed. */
export interface MissingEntryQuestion {
  readonly ino: Inode;
  readonly resource: ResourceUrl;
  readonly kind: NodeKind;
}

export interface MergeOutcome {
  /** Number of nodes written. */
  readonly changes: number;
  /** To be probed; the results go to `Tree.resolveAbsence`. */
  readonly questions: readonly MissingEntryQuestion[];
  /** Whether the service lost a version that it had acknowledged or listed. */
  readonly isTakenBack: boolean;
  /** Entries that depend on these probes: to be merged again afterwards. */
  readonly postponed: readonly RemoteEntry[];
}

export type AbsenceOutcome = RemoteDeletionOutcome | 'moved';

/** Kernel cache entries to invalidate after a remote change. */
export type TreeInvalidation =
  /** The name appeared, was removed, or belongs to another inode. `ino`: its former inode, if that has a new name. */
  | { readonly kind: 'entry'; readonly parent: Inode; readonly name: string; readonly ino?: Inode }
  /**
   * Names appeared in a folder that was never complete: a lookup of an unknown name waits for the first listing, so no
   * reply has called these absent. One for all of them: a kernel would take its lock of the folder for each.
   */
  | { readonly kind: 'first-entries'; readonly parent: Inode }
  /** `was`: the former content, if the bytes have changed or may have; null if only attributes changed. */
  | { readonly kind: 'inode'; readonly ino: Inode; readonly was: FileBytes | null }
  /** The name and its inode were deleted permanently. */
  | {
      readonly kind: 'deleted';
      readonly parent: Inode;
      readonly ino: Inode;
      readonly name: string;
      readonly isFolder?: boolean;
    };

/** Limit of entries merged in one record and one loop turn. */
const STEP_NODES_MAX = 500;
const STEP_NODES_MIN = 16;
/** Approximate limit of a turn: readers wait for its end. */
const TURN_MS = 1.5;
/** Another user or machine counts as active for this long after a change. */
const AT_WORK_MS = 10 * 60_000;

/** Ownership and mode of nodes created remotely. */
export interface NewcomerOptions {
  /** Owner; by default that of the root folder. */
  readonly uid?: number;
  readonly gid?: number;
  /** Permission bits to clear; 022 by default. */
  readonly umask?: number;
}

export interface ListingApplicationDeps {
  readonly store: StoreWriter;
  readonly names: Names;
  readonly intents: Intents;
  readonly fence: ListingFence;
  readonly clock: Clock;
  readonly log: Logger;
  readonly options: NewcomerOptions;
  readonly openFiles?: () => Iterable<OpenHere>;
  readonly contents: Pick<Contents, 'pieces' | 'sizeOf'>;
  readonly changedThere: (changes: readonly TreeInvalidation[]) => void;
  /** Nodes that the service has again, and that were pinned before: they are pinned now. */
  readonly pinnedAgain?: (inos: readonly Inode[]) => void;
  /** The service has lost the newest version of a file; `copy` holds what was here of it. */
  readonly onTakenBack?: (ino: Inode, copy: Inode | null) => void;
  /** Changes made elsewhere that are shown now, after they are stored. */
  readonly onReceived?: (changes: readonly ReceivedChange[]) => void;
  /** The pending push of the node has changed because of a remote change. */
  readonly toPush: (ino: Inode) => void;
}

/** Applies the plans of `listing-merge` to the store, step by step, and invalidates the kernel's caches. */
export class ListingApplication {
  /** Nodes deleted remotely. */
  readonly gone: RemoteDeletions;
  readonly #store: StoreWriter;
  readonly #names: Names;
  readonly #intents: Intents;
  readonly #fence: ListingFence;
  readonly #clock: Clock;
  readonly #options: NewcomerOptions;
  readonly #changedThere: (changes: readonly TreeInvalidation[]) => void;
  readonly #toPush: (ino: Inode) => void;
  readonly #openFiles: () => Iterable<OpenHere>;
  readonly #contents: Pick<Contents, 'pieces' | 'sizeOf'>;
  readonly #log: Logger;
  readonly #pinnedAgain: (inos: readonly Inode[]) => void;
  readonly #onTakenBack: (ino: Inode, copy: Inode | null) => void;
  readonly #onReceived: (changes: readonly ReceivedChange[]) => void;
  /** Time of the last listing with a remote change (`elapsedMs`); null if there was none in this run. */
  #othersSeenMs: number | null = null;
  /** Folders created here whose first listing is due since they are known to be on the service too: they were complete before. */
  readonly #wasComplete = new Set<Inode>();

  constructor(deps: ListingApplicationDeps) {
    this.#store = deps.store;
    this.#names = deps.names;
    this.#intents = deps.intents;
    this.#fence = deps.fence;
    this.#contents = deps.contents;
    this.#log = deps.log;
    this.#onTakenBack = deps.onTakenBack ?? (() => {});
    this.#onReceived = deps.onReceived ?? (() => {});
    this.#pinnedAgain = deps.pinnedAgain ?? (() => {});
    this.#clock = deps.clock;
    forgetOldDeparted(deps.store, deps.clock.nowMs());
    this.#options = deps.options;
    this.#changedThere = deps.changedThere;
    this.#toPush = deps.toPush;
    this.#openFiles = deps.openFiles ?? (() => []);
    this.gone = new RemoteDeletions({
      ...deps,
      openFiles: this.#openFiles,
      apply: (changes) => {
        this.#store.transact((tx) => {
          this.#write(tx, changes);
          this.#keepAttributes(tx, changes);
        });
        this.#changedThere(changes.flatMap(invalidationsOf));
        this.#onReceived(receivedChanges(changes));
      },
    });
  }

  *merge(
    folder: Inode,
    entries: readonly RemoteEntry[],
    sequence: number,
    requestedMs: number,
    serverTimeMs: number | null,
    ahead: MergedAhead | null,
  ): Generator<void, MergeOutcome> {
    const isLast = ahead?.isUsed === true;
    const all = isLast ? ahead.leftWith(entries) : entries;
    // An entry that moved to a later page between two requests occurs twice: the last occurrence wins.
    const byUrl = new Map(all.map((entry) => [entry.url, entry]));
    const listing: Listing = { folder, entries: byUrl, complete: !isLast, requestedMs, serverTimeMs };
    // A first listing has nothing to miss: all nodes that its merge leaves in the folder are its entries.
    const wasEmpty = ahead !== null || isEmpty(this.#store, folder);
    const merged = yield* this.#mergeBatches(listing, byUrl.values(), sequence, isLast ? ahead : null);
    if (isLast && ahead.isClashing) return { ...merged, changes: ahead.changes, questions: [] };

    const questions: MissingEntryQuestion[] = [];
    const view = { mayJudge: (ino: Inode) => this.#fence.mayJudge(ino, sequence) };
    for (let after: string | undefined, more = !wasEmpty; more; ) {
      more = false;
      let seen = 0;
      for (const [name, ino] of this.#store.scan('name', folder, after)) {
        const child = this.#store.get('node', ino);
        if (child?.remote != null && isMissing(view, listing, child)) {
          questions.push({ ino, resource: child.remote.resource, kind: child.kind });
        }
        after = name;
        seen += 1;
        more = seen === STEP_NODES_MAX;
        if (more) break;
      }
      if (more) yield;
    }

    this.#store.transact((tx) => {
      if (tx.get('node', folder) === undefined) return;
      const known = tx.get('folder', folder)?.listedMs ?? 0;
      // A time in the future: the wall clock was set back, and the folder would stay stale permanently.
      if (requestedMs > known || known > this.#clock.nowMs()) tx.put('folder', folder, { listedMs: requestedMs });
    });
    this.#wasComplete.delete(folder);
    return { ...merged, changes: isLast ? ahead.changes : merged.changes, questions };
  }

  *mergePart(
    folder: Inode,
    entries: readonly RemoteEntry[],
    sequence: number,
    requestedMs: number,
    serverTimeMs: number | null,
    ahead: MergedAhead | null,
  ): Generator<void, void> {
    const byUrl = new Map(entries.map((entry) => [entry.url, entry]));
    const listing: Listing = { folder, entries: byUrl, complete: false, requestedMs, serverTimeMs };
    yield* this.#mergeBatches(listing, byUrl.values(), sequence, ahead);
  }

  /** Merges `entries` of the listing, in steps of about `TURN_MS`. */
  *#mergeBatches(
    listing: Listing,
    entries: Iterable<RemoteEntry>,
    sequence: number,
    ahead: MergedAhead | null = null,
  ): Generator<void, Omit<MergeOutcome, 'questions'>> {
    let changes = 0;
    let isTakenBack = false;
    const postponed = new Map<ResourceUrl, RemoteEntry>();
    const waiting = entries[Symbol.iterator]();
    let step = STEP_NODES_MIN;
    for (let batch = take(waiting, step); batch.length > 0; batch = take(waiting, step)) {
      const begunMs = this.#clock.elapsedMs();
      const plan = this.#mergeBatch(listing, batch, sequence);
      changes += plan.changes.length;
      ahead?.add(batch, plan.changes, this.#names);
      if (plan.takenBack.length > 0) isTakenBack = true;
      for (const entry of plan.postponed) postponed.set(entry.url, entry);
      // Known entries cost a tenth of new ones: merge as many as fit into one turn.
      const tookMs = this.#clock.elapsedMs() - begunMs;
      if (tookMs < TURN_MS / 2) step = Math.min(step * 2, STEP_NODES_MAX);
      else if (tookMs > TURN_MS) step = Math.max(step / 2, STEP_NODES_MIN);
      yield;
    }
    return { changes, isTakenBack, postponed: [...postponed.values()] };
  }

  resolveAbsence(ino: Inode, answer: RemoteResource | null, sequence: number, isBelieved: boolean): AbsenceOutcome {
    const node = this.#store.get('node', ino);
    if (node === undefined || node.remote === null || !this.#fence.mayJudge(ino, sequence)) return 'kept';
    const parent = answer?.parent == null ? undefined : this.#nodeOf(this.#store, answer.parent);
    if (answer !== null && parent?.kind === 'folder' && this.#readdress(node, node.remote, answer.url)) {
      const { remote } = node;
      const stays = parent.ino === remote.parent && answer.name === remote.name;
      const listing: Listing = {
        folder: parent.ino,
        entries: new Map([[answer.url, answer]]),
        complete: false,
        requestedMs: this.#clock.nowMs(),
        serverTimeMs: null,
      };
      this.#mergeBatch(listing, [answer], sequence);
      this.gone.found(ino);
      return stays ? 'kept' : 'moved';
    }
    // Deleted, in the trash, or in a folder not listed yet, whose listing will show it. Or another node has it by now.
    return this.gone.settle(node, isBelieved);
  }

  /** Records the resource's new URL. @returns false if another node is known to have it */
  #readdress(node: NodeRecord, remote: RemoteFacet, resource: ResourceUrl): boolean {
    if (resource === remote.resource) return true;
    if (this.#store.get('resource', resource) !== undefined) return false;
    const after = { ...node, remote: { ...remote, resource } };
    this.#store.transact((tx) => {
      writeNode(tx, node, after, this.#clock.nowMs());
      this.#intents.readdress(tx, remote.resource, resource);
    });
    // Requests refused under the old URL are retried.
    if (isDirty(after)) this.#toPush(after.ino);
    return true;
  }

  #mergeBatch(listing: Listing, batch: readonly RemoteEntry[], sequence: number): MergePlan {
    const wasListed = this.#store.get('folder', listing.folder) !== undefined;
    const back = new Map<ResourceUrl, DepartedRecord>();
    let pinned: readonly Inode[] = [];
    const plan = this.#store.transact((tx) => {
      const folder = tx.get('node', listing.folder);
      if (folder?.kind !== 'folder' || folder.remote === null)
        return { changes: [], postponed: [], unlisted: [], takenBack: [] };
      const made = mergeEntries(this.#viewOf(tx, folder, sequence, back), listing, batch);
      this.#write(tx, made.changes);
      pinned = pinAgain(tx, made.changes, back);
      for (const ino of made.unlisted) tx.remove('folder', ino);
      // Entries discovered by the first listing do not change the folder's mtime.
      if (wasListed && made.changes.some(isNameChange)) this.#touch(tx, listing.folder);
      return made;
    });
    if (pinned.length > 0) this.#pinnedAgain(pinned);
    // A visible difference from the previous listing comes from another client. A first listing shows no change.
    if (wasListed && plan.changes.some(({ before, after }) => before?.local !== after.local))
      this.#othersSeenMs = this.#clock.elapsedMs();
    for (const ino of plan.unlisted) this.#wasComplete.add(ino);
    const isUnknown = !wasListed && !this.#wasComplete.has(listing.folder);
    const forget = plan.changes.flatMap((change) =>
      isUnknown && isNewIn(listing.folder, change) ? [] : invalidationsOf(change),
    );
    if (isUnknown && plan.changes.some((change) => isNewIn(listing.folder, change)))
      forget.push({ kind: 'first-entries', parent: listing.folder });
    if (wasListed && plan.changes.some(isNameChange)) {
      forget.push({ kind: 'inode', ino: listing.folder, was: null });
    }
    this.#changedThere(forget);
    if (wasListed) this.#onReceived(receivedChanges(plan.changes));
    for (const { ino, copy } of plan.takenBack) {
      this.#log.error({ ino, copy }, 'the service lost an acknowledged version; the local bytes are kept as a copy');
      this.#onTakenBack(ino, copy);
    }
    for (const { before, after } of plan.changes) {
      if (isDirty(after) || (before !== undefined && isDirty(before))) this.#toPush(after.ino);
    }
    return plan;
  }

  #write(tx: Transaction, changes: readonly NodeChange[]): void {
    const nowMs = this.#clock.nowMs();
    for (const { before, after } of changes)
      writeNode(tx, before === undefined ? undefined : tx.get('node', after.ino), after, nowMs);
    const kept = changes.filter(({ before, after }) => before?.localOnly === false && after.localOnly);
    if (kept.length > 0)
      noteLocalFolders(
        tx,
        kept.map(({ after }) => after.ino),
      );
  }

  #keepAttributes(tx: Transaction, changes: readonly NodeChange[]): void {
    const gone: NodeRecord[] = [];
    for (const { before, after } of changes)
      if (before !== undefined && after.local === null && after.remote === null) gone.push(before);
    if (gone.length === 0) return;
    const { uid, gid } = this.#ownerOf(tx);
    keepDeparted(tx, gone, this.#clock.nowMs(), ({ kind, local, remote }) => {
      if (kind === 'folder' || local === null || local.xattrs !== null) return false;
      if (local.uid !== uid || local.gid !== gid || local.mode !== modeOf(kind, this.#umask)) return false;
      if (remote?.modified == null) return false;
      const modified = timespecOfMs(remote.modified.ms);
      return isSameTime(local.mtime, modified) && isSameTime(local.atime, modified);
    });
  }

  get #umask(): number {
    return this.#options.umask ?? 0o022;
  }

  #ownerOf(tx: Transaction): { readonly uid: number; readonly gid: number } {
    const root = tx.get('node', ROOT_INODE)?.local;
    const { uid, gid } = this.#options;
    return { uid: uid ?? root?.uid ?? 0, gid: gid ?? root?.gid ?? 0 };
  }

  #touch(tx: Transaction, ino: Inode): void {
    const nowMs = this.#clock.nowMs();
    const now = timespecOfMs(nowMs);
    const before = tx.get('node', ino);
    if (before === undefined || before.local === null) return;
    writeNode(tx, before, { ...before, local: { ...before.local, mtime: now, ctime: now } }, nowMs);
  }

  /** @param back gets the kept attributes that the merge asks for */
  #viewOf(tx: Transaction, folder: NodeRecord, sequence: number, back: Map<ResourceUrl, DepartedRecord>): MergeView {
    const isAnyDeparted = departedWeight(tx) > 0;
    return {
      names: this.#names,
      owner: this.#ownerOf(tx),
      umask: this.#umask,
      node: (ino) => tx.get('node', ino),
      byResource: (resource) => this.#nodeOf(tx, resource),
      child: (parent, name) => childOf(tx, parent, name),
      mayJudge: (ino) => this.#fence.mayJudge(ino, sequence),
      isStranger: this.#fence.strangers(folder.remote?.resource ?? null, sequence),
      isTrash: (folder) => isTrashFolder(tx, folder),
      mayHoldAbandoned: (resource) => this.#intents.abandonedOf(resource).length > 0,
      newInode: () => newInode(tx),
      departed: (resource) => {
        const kept = isAnyDeparted ? departedAttributes(tx, resource, this.#clock.nowMs()) : undefined;
        if (kept !== undefined) back.set(resource, kept);
        return kept;
      },
      isHere: (content) => isWhole(this.#contents, content),
      conflictName: (name, isTaken) =>
        conflictName(name, { nowMs: this.#clock.nowMs(), host: hostname(), bytes: 'own', isTaken }),
      isOpen: (ino) => this.#isOpen(ino),
      othersAtWork: this.#othersSeenMs !== null && this.#clock.elapsedMs() - this.#othersSeenMs < AT_WORK_MS,
    };
  }

  #isOpen(ino: Inode): boolean {
    for (const open of this.#openFiles()) if (open.ino === ino) return true;
    return false;
  }

  #nodeOf(reader: Pick<StoreWriter, 'get'>, resource: ResourceUrl): NodeRecord | undefined {
    const ino = reader.get('resource', resource);
    return ino === undefined ? undefined : reader.get('node', ino);
  }
}

/** @returns the new nodes that are pinned because their resource was pinned before it was gone */
function pinAgain(
  tx: Transaction,
  changes: readonly NodeChange[],
  back: ReadonlyMap<ResourceUrl, DepartedRecord>,
): readonly Inode[] {
  if (back.size === 0) return [];
  const again = new Set<Inode>();
  for (const { before, after } of changes)
    if (before === undefined && after.remote !== null && back.get(after.remote.resource)?.isPinned)
      again.add(after.ino);
  if (again.size === 0) return [];
  // Removed nodes do not count: their pins are removed with the next round.
  const kept = pinnedNodes(tx).filter((ino) => tx.get('node', ino) !== undefined && !again.has(ino));
  const pinned = [...again].slice(0, Math.max(0, PINS_MAX - kept.length));
  writePinnedNodes(tx, [...kept, ...pinned]);
  return pinned;
}

function isNameChange({ before, after }: NodeChange): boolean {
  return before?.local?.parent !== after.local?.parent || before?.local?.name !== after.local?.name;
}

function isNewIn(folder: Inode, { before, after }: NodeChange): boolean {
  return before === undefined && after.local?.parent === folder;
}

/** Kernel cache entries that became stale by the change. */
function invalidationsOf({ before, after }: NodeChange): TreeInvalidation[] {
  const was = before?.local ?? null;
  const is = after.local;
  const { ino } = after;
  if (was === null && is === null) return [];
  if (was === null) return is === null ? [] : [{ kind: 'entry', parent: is.parent, name: is.name }];
  if (is === null)
    return [{ kind: 'deleted', parent: was.parent, ino, name: was.name, isFolder: after.kind === 'folder' }];
  const forget: TreeInvalidation[] = [];
  if (was.parent !== is.parent || was.name !== is.name) {
    forget.push({ kind: 'entry', parent: was.parent, name: was.name, ino });
    forget.push({ kind: 'entry', parent: is.parent, name: is.name });
  }
  const contentChanged =
    was.content !== is.content ||
    was.sizeBytes !== is.sizeBytes ||
    was.mtime !== is.mtime ||
    // The next read must reach this process, so that the service is asked.
    (isSuspect(after) && !(before !== undefined && isSuspect(before)));
  if (contentChanged || was !== is) forget.push({ kind: 'inode', ino, was: contentChanged ? was : null });
  return forget;
}

/** The next `count` of `items`; fewer at the end. */
function take<T>(items: Iterator<T>, count: number): T[] {
  const taken: T[] = [];
  while (taken.length < count) {
    const next = items.next();
    if (next.done) break;
    taken.push(next.value);
  }
  return taken;
}

/** Whether `child` is missing from a complete listing although it is known remotely. */
function isMissing(view: Pick<MergeView, 'mayJudge'>, listing: Listing, child: NodeRecord): boolean {
  return (
    child.remote !== null &&
    child.remote.parent === listing.folder &&
    !listing.entries.has(child.remote.resource) &&
    view.mayJudge(child.ino)
  );
}
