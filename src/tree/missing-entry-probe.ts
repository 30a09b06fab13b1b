import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { RemoteResource } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import type { AbsenceOutcome, MissingEntryQuestion } from './listing-application.ts';
import type { ListingFence } from './listing-fence.ts';
import type { RemoteListing } from './remote-listing.ts';
import type { Tree } from './tree.ts';

/** Limit of ancestors requested while a moved resource is traced to a known folder. */
const DEPTH_MAX = 64;

/**
 * Probes the URLs of nodes that a listing lacks. If a node was moved into an unknown folder, its ancestors are
 * requested until one is known. One instance belongs to one listing.
 */
export class MissingEntryProbe {
  readonly #tree: Tree;
  readonly #listing: RemoteListing;
  readonly #fence: ListingFence;
  readonly #clock: Clock;
  /** Folders outside the mounted tree; above all the trash, where most missing entries are found. */
  readonly #outside = new Set<ResourceUrl>();

  constructor(deps: {
    readonly tree: Tree;
    readonly listing: RemoteListing;
    readonly fence: ListingFence;
    readonly clock: Clock;
  }) {
    this.#tree = deps.tree;
    this.#listing = deps.listing;
    this.#fence = deps.fence;
    this.#clock = deps.clock;
  }

  /**
   * Probes the URL and applies the result. A 404 changes nothing, because any gateway can send one: the result is
   * `refused`, and the caller also needs a listing of the parent to decide.
   *
   * @throws ApiError, TransportError: nothing was changed
   */
  async resolve(question: MissingEntryQuestion, signal: AbortSignal): Promise<AbsenceOutcome | 'refused'> {
    const sequence = this.#fence.nextSequence();
    try {
      const answer = await this.#listing.resource(question.resource, question.kind, signal);
      if (answer === null) return 'refused';
      if (answer.parent !== null) await this.#reveal(answer.parent, sequence, signal);
      // The resource has changed hands meanwhile: the result does not concern this node.
      if (this.#tree.node(question.ino)?.remote?.resource !== question.resource) return 'kept';
      return this.#tree.resolveAbsence(question.ino, answer, sequence, true);
    } finally {
      this.#fence.finish(sequence);
    }
  }

  /** Null if the folder is not accessible: a shared folder reports its owner's parent. */
  async #folder(url: ResourceUrl, signal: AbortSignal): Promise<RemoteResource | null> {
    try {
      return await this.#listing.resource(url, 'folder', signal);
    } catch (error) {
      if (error instanceof ApiError && (error.status === 400 || error.status === 403)) return null;
      throw error;
    }
  }

  /** Adds `folder` and its ancestors up to a known one to the tree, if there is a known one. */
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
