import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { RemoteEntry, RemoteResource } from '../base/resources.ts';
import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import type { NodeRecord, RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { Intents } from './intents.ts';
import type { RemoteNaming } from './name-push.ts';
import { fileNameOf, ownerOf, recordRelocated } from './outcome.ts';
import type { RemoteChanges } from './remote-changes.ts';

/** Where a push was to put a resource. */
export interface AimedPlace {
  readonly folder: ResourceUrl;
  readonly name: string;
}

/**
 * The service may give what is moved a new address (wire-facts 4.5). Where the answer that tells it is lost, the old one is nobody's, and the
 * same move asked for again is a 404: that does not mean that the file is gone.
 */
export class NewAddress {
  readonly #deps: NewAddressDeps;

  constructor(deps: NewAddressDeps) {
    this.#deps = deps;
  }

  /**
   * Looks for a resource of ours, whose address is nobody's any more, where the push of `ino` was to put it: nobody here knows another that is
   * called so there. What is found is written down with the end of that push.
   */
  async find(ino: Inode, resource: ResourceUrl, { folder, name }: AimedPlace, signal: AbortSignal): Promise<boolean> {
    const { store, naming, changes, intents, clock } = this.#deps;
    const parent = store.get('resource', folder);
    if (parent === undefined) return false;
    const entries = await this.#entriesOf(changes, folder, signal);
    const node = ownerOf(store, resource);
    if (!node?.remote) return false;
    const { remote } = node;
    const found = entries.find(
      (entry) => entry.name === name && mayBe(node, remote, entry) && store.get('resource', entry.url) === undefined,
    );
    if (found === undefined) return false;
    store.transact((tx) => {
      const place = { resource: found.url, parent, name, shownAs: fileNameOf(naming, node, name) };
      recordRelocated(tx, resource, place, clock.nowMs());
      intents.end(tx, ino);
    });
    return true;
  }

  /** What the service tells of a resource of ours after it was to be moved, under whatever address. @returns false where another has that */
  learn(ino: Inode, resource: ResourceUrl, found: RemoteResource, parent: Inode | undefined): boolean {
    const { store, naming, intents, clock } = this.#deps;
    return store.transact((tx) => {
      const node = ownerOf(tx, resource);
      const owner = tx.get('resource', found.url);
      if (owner !== undefined && owner !== node?.ino) return false;
      intents.end(tx, ino);
      if (!node?.remote) return true;
      const { remote } = node;
      // Somewhere we do not know: somebody else moved it, and a listing will say so.
      const stays = parent === undefined || (found.name === remote.name && parent === remote.parent);
      if (stays && found.url === resource) return true;
      const place = stays ? remote : { parent, name: found.name, shownAs: fileNameOf(naming, node, found.name) };
      recordRelocated(tx, resource, { ...place, resource: found.url }, clock.nowMs());
      return true;
    });
  }

  /** None where the folder is gone. */
  async #entriesOf(
    changes: Pick<RemoteChanges, 'list'>,
    folder: ResourceUrl,
    signal: AbortSignal,
  ): Promise<readonly RemoteEntry[]> {
    try {
      return await changes.list(folder, signal);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return [];
      throw error;
    }
  }
}

export interface NewAddressDeps {
  readonly store: StoreWriter;
  readonly naming: Pick<RemoteNaming, 'toRemoteName' | 'toFileName'>;
  readonly changes: Pick<RemoteChanges, 'list'>;
  readonly intents: Intents;
  readonly clock: Clock;
}

/** Whether an entry can be what the service had of a node: of its kind, and as long. */
function mayBe(node: NodeRecord, remote: RemoteFacet, entry: RemoteEntry): boolean {
  if (entry.kind === 'folder') return node.kind === 'folder';
  return node.kind !== 'folder' && entry.sizeBytes === remote.sizeBytes;
}
