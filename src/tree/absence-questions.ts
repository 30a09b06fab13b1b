import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { RemoteResource } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import type { AbsenceOutcome, AbsenceQuestion } from './listing-application.ts';
import type { PushMarks } from './push-marks.ts';
import type { RemoteListing } from './remote-listing.ts';
import type { Tree } from './tree.ts';

/** Folders above a moved resource that are asked for until one is known. */
const DEPTH_MAX = 64;

/**
 * Finds out what became of nodes that a listing lacks, by their URLs. A node that was moved into an unknown folder is followed: the folders
 * above it are asked for until one is known. One set of questions belongs to one listing.
 */
export class AbsenceQuestions {
  readonly #tree: Tree;
  readonly #listing: RemoteListing;
  readonly #marks: PushMarks;
  readonly #clock: Clock;
  /** Folders that do not lie in our tree: the trash, above all, where most of what is missing is found. */
  readonly #outside = new Set<ResourceUrl>();

  constructor(deps: {
    readonly tree: Tree;
    readonly listing: RemoteListing;
    readonly marks: PushMarks;
    readonly clock: Clock;
  }) {
    this.#tree = deps.tree;
    this.#listing = deps.listing;
    this.#marks = deps.marks;
    this.#clock = deps.clock;
  }

  /**
   * Asks, and applies the answer. `refused`: the answer is a 404. Any gateway can say that, so nothing was done: the caller needs a listing
   * of the parent as well.
   *
   * @throws ApiError, TransportError: nothing was done
   */
  async settle(question: AbsenceQuestion, signal: AbortSignal): Promise<AbsenceOutcome | 'refused'> {
    const sequence = this.#marks.nextSequence();
    try {
      const answer = await this.#listing.resource(question.resource, question.kind, signal);
      if (answer === null) return 'refused';
      if (answer.parent !== null) await this.#reveal(answer.parent, sequence, signal);
      // Another node has the resource by now, or this node has another one: the answer does not concern it.
      if (this.#tree.node(question.ino)?.remote?.resource !== question.resource) return 'kept';
      return this.#tree.settleAbsence(question.ino, answer, sequence, true);
    } finally {
      this.#marks.finish(sequence);
    }
  }

  /** Null above what may be looked at: a shared folder tells of its owner's. */
  async #folder(url: ResourceUrl, signal: AbortSignal): Promise<RemoteResource | null> {
    try {
      return await this.#listing.resource(url, 'folder', signal);
    } catch (error) {
      if (error instanceof ApiError && (error.status === 400 || error.status === 403)) return null;
      throw error;
    }
  }

  /** Makes `folder` known, with all folders between it and one that is known, if there is one. */
  async #reveal(folder: ResourceUrl, sequence: number, signal: AbortSignal): Promise<void> {
    const path: RemoteResource[] = [];
    for (let at = folder; this.#tree.nodeOf(at) === undefined; ) {
      const resource = this.#outside.has(at) ? null : await this.#folder(at, signal);
      if (resource === null || resource.parent === null || path.length === DEPTH_MAX) {
        for (const url of [at, ...path.map(({ url }) => url)]) this.#outside.add(url);
        return;
      }
      path.unshift(resource);
      at = resource.parent;
    }
    for (const resource of path) {
      const parent = resource.parent === null ? undefined : this.#tree.nodeOf(resource.parent);
      if (parent === undefined) return;
      this.#tree.mergePart(parent.ino, [resource], sequence, this.#clock.nowMs(), null);
    }
  }
}
