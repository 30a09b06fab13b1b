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
 * Finds out what became of nodes that a listing lacks, by their URLs. What was moved into folders that we have not seen yet
 * is followed: those folders are asked for upwards until one is known. One set of questions belongs to one listing.
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
   * Asks, and does what the answer says.
   *
   * @throws ApiError, TransportError: nothing was done
   */
  async settle(question: AbsenceQuestion, accept: boolean, signal: AbortSignal): Promise<AbsenceOutcome> {
    const sequence = this.#marks.nextSequence();
    try {
      const answer = await this.#listing.resource(question.resource, question.kind, signal);
      if (answer?.parent != null) await this.#reveal(answer.parent, sequence, signal);
      // Another node has it by now, or this one has another: the answer says nothing of that.
      if (this.#tree.node(question.ino)?.remote?.resource !== question.resource) return 'kept';
      return this.#tree.settleAbsence(question.ino, answer, sequence, accept);
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
