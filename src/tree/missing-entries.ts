import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Clock } from '../base/clock.ts';
import { FsError, TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { RemoteEntry } from '../base/resources.ts';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import { isContentDirty } from '../store/node-table.ts';
import { ROLLBACK_REMOVALS_MAX } from '../store/rollback-removals.ts';
import type { MergeOutcome, MissingEntryQuestion } from './listing-application.ts';
import type { ListingFence } from './listing-fence.ts';
import { listPages } from './listing-pages.ts';
import type { MergedAhead } from './merged-ahead.ts';
import { MissingEntryProbe } from './missing-entry-probe.ts';
import type { RemoteListing } from './remote-listing.ts';
import { REMOVALS_BELIEVED_MAX, RemovalLimit } from './removal-limit.ts';
import type { Tree } from './tree.ts';

/** Removals that wait for `cfs refresh --accept`. `at`: the entry to be removed, or the folder of several. */
export interface HeldRemovals {
  readonly at: Inode;
  readonly nodes: number;
}

/** One complete listing of a folder. */
export interface Listed {
  readonly folder: Inode;
  readonly sequence: number;
  readonly requestedMs: number;
  readonly serverTimeMs: number | null;
}

/** Entries of one folder whose own URL answered 404, with that URL. */
export type Refused = ReadonlyMap<Inode, ResourceUrl>;

export interface MissingEntriesDeps {
  readonly tree: Tree;
  readonly listing: RemoteListing;
  readonly fence: ListingFence;
  readonly clock: Clock;
  readonly log: Logger;
  readonly stop: AbortSignal;
  /** Lists a folder by a new request; the pass uses its entries of `takeRefused`. Rejects like a listing. */
  readonly list: (folder: Inode, accept: boolean) => Promise<void>;
  /** The folder's listing in progress; never rejects. */
  readonly underWay: (folder: Inode) => Promise<unknown> | undefined;
  /** Removals now wait for the user's confirmation. */
  readonly onHeld: (held: HeldRemovals) => void;
  readonly unanswered: (error: Error) => void;
}

const QUESTIONS_AT_ONCE_MAX = 4;
/** Smaller numbers of missing entries never count as "half of the folder at once". */
const HALF_MISSING_MIN = 20;

/**
 * Decides about nodes that a listing lacks (ADR 25). A node is removed on one of two proofs:
 *
 * - its own URL answers with another place;
 * - its own URL answers 404, and a listing of its parent, requested after that 404, succeeds and lacks it.
 *
 * A 404 alone proves nothing: a broken gateway answers so for everything. Removals by the second proof share one limit
 * (`RemovalLimit`).
 */
export class MissingEntries {
  readonly #deps: MissingEntriesDeps;
  readonly #limit: RemovalLimit;
  /** Entries that wait for the next listing of their folder, by folder. */
  readonly #refused = new Map<Inode, Map<Inode, ResourceUrl>>();
  /** Folders that wait for the listing of their parent. */
  readonly #waitingFor = new Map<Inode, Inode>();
  /** Entries missing at the same time as a lost acknowledged version: they wait for the user. Stored; oldest first. */
  readonly #lostTogether: Set<Inode>;
  readonly #held = new Map<Inode, HeldRemovals>();

  constructor(deps: MissingEntriesDeps) {
    this.#deps = deps;
    this.#lostTogether = new Set(deps.tree.rollbackRemovals);
    this.#limit = new RemovalLimit({ clock: deps.clock, countKnown: (max) => deps.tree.countKnown(max) });
  }

  get held(): readonly HeldRemovals[] {
    return [...this.#held.values()].filter(({ at }) => this.#deps.tree.node(at) !== undefined);
  }

  /** Folders with held removals. */
  get heldFolders(): Iterable<Inode> {
    return this.#held.keys();
  }

  /** Whether entries wait for the user since a rollback: a listing that has one of them ends that. */
  get isWaiting(): boolean {
    return this.#lostTogether.size > 0;
  }

  /** Takes the entries that the next listing of the folder decides. Call before the request. */
  takeRefused(folder: Inode): Refused {
    const refused = this.#refused.get(folder) ?? new Map();
    this.#refused.delete(folder);
    return refused;
  }

  /** Merges a complete listing, step by step. `ahead`: the pages that were merged before. */
  async merge(
    listed: Listed,
    entries: readonly RemoteEntry[],
    ahead: MergedAhead | null = null,
  ): Promise<MergeOutcome> {
    const { folder, sequence, requestedMs, serverTimeMs } = listed;
    return await inTurns(this.#deps.tree.mergeSteps(folder, entries, sequence, requestedMs, serverTimeMs, ahead));
  }

  /** Merges a page of a first listing whose last page is under way, step by step. */
  async mergePage(listed: Listed, entries: readonly RemoteEntry[], ahead: MergedAhead): Promise<void> {
    const { folder, sequence, requestedMs, serverTimeMs } = listed;
    await inTurns(this.#deps.tree.mergePageSteps(folder, entries, sequence, requestedMs, serverTimeMs, ahead));
  }

  /**
   * Probes the entries that a merged listing lacks, then merges the postponed entries.
   *
   * @param refused from `takeRefused`, before the listing was requested
   */
  async resolve(
    listed: Listed,
    outcome: MergeOutcome,
    options: { readonly entries: readonly RemoteEntry[]; readonly refused: Refused; readonly accept: boolean },
  ): Promise<void> {
    const { folder } = listed;
    const { entries, refused, accept } = options;
    const { questions } = outcome;
    this.#keepLostTogether([], this.#foundAgain(entries));
    const half = questions.length >= HALF_MISSING_MIN && questions.length > entries.length;
    const tooMany = (questions.length > REMOVALS_BELIEVED_MAX || half) && !accept;
    const isRefused = ({ ino, resource }: MissingEntryQuestion): boolean => refused.get(ino) === resource;
    if (tooMany) {
      this.#hold(folder, questions);
      for (const { ino } of questions) this.#deps.tree.gone.suspected(ino);
    }
    try {
      const open = questions.filter((question) => !isRefused(question));
      // Probe changed nodes even above the limit: their changes would be pushed into a deleted place.
      const refusedNow = await this.#ask(tooMany ? open.filter(({ ino }) => this.#isChangedHere(ino)) : open);
      const proof = refusedNow.length > 0 ? await this.#listAgain(folder) : null;
      const missing = new Map((proof?.outcome.questions ?? []).map(({ ino, resource }) => [ino, resource]));
      const proven = [
        ...questions.filter(isRefused),
        ...refusedNow.filter(({ ino, resource }) => missing.get(ino) === resource),
      ];
      if (outcome.isTakenBack || proof?.outcome.isTakenBack) this.#keepLostTogether(proven, []);
      const isHeld = this.#remove(folder, proven, { accept, isHeld: tooMany });
      if (isHeld || tooMany) return;
      this.#held.delete(folder);
      const { sequence, requestedMs, serverTimeMs } = proof?.listed ?? listed;
      this.#deps.tree.mergePart(folder, (proof?.outcome ?? outcome).postponed, sequence, requestedMs, serverTimeMs);
    } catch (error) {
      // Failed probes change nothing: the next listing repeats them.
      if (error instanceof TransportError) this.#deps.unanswered(error);
      else this.#deps.log.warn({ err: error, folder }, 'missing entries not probed');
    }
  }

  /**
   * Decides whether `folder`, whose listing was answered with 404, was deleted.
   *
   * @returns true if nothing proves it: the folder stays, and is retried after growing pauses
   * @throws FsError ENOENT it was deleted · EIO it exists, but its entries are not known · errors of its probes
   */
  async resolveFolder(folder: Inode, accept: boolean): Promise<boolean> {
    const { tree, log } = this.#deps;
    const resource = tree.node(folder)?.remote?.resource;
    if (resource === undefined) throw new FsError('ENOENT');
    // No listing could lack the root: it is never removed.
    if (folder === ROOT_INODE) log.error('the root folder was deleted on the service; everything is kept here');
    else await this.resolveOne({ ino: folder, resource, kind: 'folder' }, accept);
    if (tree.node(folder) === undefined) throw new FsError('ENOENT', 'the folder was deleted on the service');
    if (!tree.isComplete(folder)) throw new FsError('EIO', 'the service does not list an existing folder');
    return !tree.gone.has(folder);
  }

  /** Probes one node; after a 404 it also lists the parent. @throws as a listing, for the node's own URL */
  async resolveOne(question: MissingEntryQuestion, accept: boolean): Promise<void> {
    const { tree, log, stop } = this.#deps;
    if ((await this.#newProbe().resolve(question, stop)) !== 'refused') return;
    const node = tree.node(question.ino);
    if (node?.remote == null || node.remote.resource !== question.resource) return;
    const { parent } = node.remote;
    if (tree.node(parent)?.remote == null) {
      // The parent was deleted remotely and exists only here.
      this.#remove(parent, [question], { accept, isHeld: false });
      return;
    }
    // A faulty service may report two folders inside each other: do not wait in a cycle.
    if (this.#waits(parent, question.ino)) return;
    this.#waitingFor.set(question.ino, parent);
    const refused = this.#refused.get(parent) ?? new Map<Inode, ResourceUrl>();
    this.#refused.set(parent, refused.set(question.ino, question.resource));
    try {
      await this.#deps.underWay(parent);
      const isTaken = this.#refused.get(parent)?.get(question.ino) === undefined;
      if (isTaken) await this.#deps.underWay(parent);
      else await this.#deps.list(parent, accept);
    } catch (err) {
      log.debug({ err, folder: parent }, 'folder not listed to confirm a missing entry');
    } finally {
      this.#waitingFor.delete(question.ino);
    }
  }

  /** @returns the probes whose own URL was 404, or whose result depends on a 404 */
  async #ask(questions: readonly MissingEntryQuestion[]): Promise<readonly MissingEntryQuestion[]> {
    const refused: MissingEntryQuestion[] = [];
    const waiting = [...questions];
    const asking = this.#newProbe();
    const ask = async (): Promise<void> => {
      for (let question = waiting.pop(); question !== undefined; question = waiting.pop()) {
        if ((await asking.resolve(question, this.#deps.stop)) === 'refused') refused.push(question);
      }
    };
    try {
      await Promise.all(Array.from({ length: Math.min(QUESTIONS_AT_ONCE_MAX, questions.length) }, ask));
    } finally {
      waiting.length = 0;
    }
    return refused;
  }

  /** The second listing that confirms a 404. */
  async #listAgain(folder: Inode): Promise<{ readonly listed: Listed; readonly outcome: MergeOutcome } | null> {
    const { tree, listing, fence, clock, stop } = this.#deps;
    const resource = tree.node(folder)?.remote?.resource;
    if (resource === undefined) return null;
    const sequence = fence.nextSequence();
    try {
      const requestedMs = clock.nowMs();
      const { entries, serverTimeMs } = await listPages(listing, resource, stop);
      const listed = { folder, sequence, requestedMs, serverTimeMs };
      return { listed, outcome: await this.merge(listed, entries) };
    } finally {
      fence.finish(sequence);
    }
  }

  /** Removes entries whose deletion is proven. @returns whether the removal waits for the user's confirmation */
  #remove(
    folder: Inode,
    proven: readonly MissingEntryQuestion[],
    { accept, isHeld }: { readonly accept: boolean; readonly isHeld: boolean },
  ): boolean {
    const { tree, fence } = this.#deps;
    const isThere = ({ ino, resource }: MissingEntryQuestion): boolean => tree.node(ino)?.remote?.resource === resource;
    const gone = proven.filter(isThere);
    const nodes = this.#countOf(gone);
    const isLost = gone.some(({ ino }) => this.#lostTogether.has(ino));
    const isBelieved = accept || (!isHeld && !isLost && this.#limit.allows(nodes));
    if (isBelieved) this.#keepLostTogether([], gone);
    if (isBelieved && !accept) this.#limit.believed(nodes);
    if (!isBelieved && !isHeld) this.#hold(folder, gone);
    for (const { ino } of gone) {
      const sequence = fence.nextSequence();
      tree.resolveAbsence(ino, null, sequence, isBelieved);
      fence.finish(sequence);
    }
    return !isBelieved;
  }

  /** Nodes that the service has again, and those that are no longer here. */
  #foundAgain(entries: readonly RemoteEntry[]): { readonly ino: Inode }[] {
    if (this.#lostTogether.size === 0) return [];
    const listed = new Set(entries.map(({ url }) => url));
    const isFound = (ino: Inode): boolean => {
      const remote = this.#deps.tree.node(ino)?.remote;
      return remote == null || listed.has(remote.resource);
    };
    return [...this.#lostTogether].filter(isFound).map((ino) => ({ ino }));
  }

  /** Changes `#lostTogether`, here and in the store: after a restart no listing shows the rollback again. */
  #keepLostTogether(added: readonly { readonly ino: Inode }[], removed: readonly { readonly ino: Inode }[]): void {
    const kept = this.#lostTogether;
    const before = kept.size;
    for (const { ino } of removed) kept.delete(ino);
    let isChanged = kept.size < before;
    for (const { ino } of added) {
      isChanged ||= !kept.has(ino);
      kept.add(ino);
    }
    if (!isChanged) return;
    for (const oldest of kept) {
      if (kept.size <= ROLLBACK_REMOVALS_MAX) break;
      kept.delete(oldest);
    }
    try {
      this.#deps.tree.setRollbackRemovals([...kept]);
    } catch (err) {
      // A full disk: this process knows them.
      this.#deps.log.warn({ err }, 'removals that wait since a rollback are not stored');
    }
  }

  /** Number of nodes that would be removed, counted up to one above the limit. */
  #countOf(questions: readonly MissingEntryQuestion[]): number {
    const { tree } = this.#deps;
    let nodes = 0;
    for (const { ino } of questions) {
      if (nodes > REMOVALS_BELIEVED_MAX) break;
      const node = tree.node(ino);
      if (node !== undefined) nodes += tree.gone.countOf(node, REMOVALS_BELIEVED_MAX + 1 - nodes);
    }
    return nodes;
  }

  #hold(folder: Inode, questions: readonly MissingEntryQuestion[]): void {
    const [only] = questions;
    const at = questions.length === 1 && only !== undefined ? only.ino : folder;
    const nodes = Math.max(this.#countOf(questions), questions.length);
    if (!this.#held.has(folder)) {
      this.#deps.log.error(
        { folder, nodes },
        'many entries were deleted on the service together; kept until cfs refresh --accept',
      );
      this.#deps.onHeld({ at, nodes });
    }
    this.#held.set(folder, { at, nodes });
  }

  /** Whether `folder` waits, directly or indirectly, for a listing of `other`, or of what `other` would wait for. */
  #waits(folder: Inode, other: Inode): boolean {
    for (let at: Inode | undefined = folder; at !== undefined; at = this.#waitingFor.get(at))
      if (at === other) return true;
    return false;
  }

  #isChangedHere(ino: Inode): boolean {
    const node = this.#deps.tree.node(ino);
    return node !== undefined && isContentDirty(node);
  }

  #newProbe(): MissingEntryProbe {
    return new MissingEntryProbe(this.#deps);
  }
}

/** Runs each step in a turn of its own. @returns the result of the last one */
async function inTurns<T>(steps: Generator<void, T>): Promise<T> {
  for (let step = steps.next(); ; step = steps.next()) {
    if (step.done) return step.value;
    await nextTurn();
  }
}
