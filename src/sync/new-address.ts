import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { RemoteEntry, RemoteResource } from '../base/resources.ts';
import type { Inode, IntentId, ResourceUrl } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import type { NodeRecord, RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { NameOutcome } from './name-outcome.ts';
import { fileNameOf, ownerOf, recordRelocated } from './outcome.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { RemoteNaming } from './remote-naming.ts';

/**
 * The service may give what is moved a new address (docs/service.md 13.1). Where the answer that tells it is lost, the old one is nobody's, and the
 * same move asked for again is a 404: that does not mean that the file is gone.
 */
export class NewAddress {
  readonly #deps: NewAddressDeps;

  constructor(deps: NewAddressDeps) {
    this.#deps = deps;
  }

  /**
   * Looks for a resource of ours, whose address is nobody's any more, where the push was to put it: nobody here knows another that is
   * called so there. What is found is written down with the end of that push.
   */
  async find(id: IntentId, resource: ResourceUrl, signal: AbortSignal): Promise<boolean> {
    const { store, naming, changes, intents, clock } = this.#deps;
    // As it is now: since the push began the folder may have got another address itself.
    const { parentResource: folder = null, name = null } = intents.get(id) ?? {};
    const parent = folder === null ? undefined : store.get('resource', folder);
    if (folder === null || name === null || parent === undefined) return false;
    const entries = await this.#entriesOf(changes, parent, folder, signal);
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
      intents.end(tx, id);
      intents.readdress(tx, resource, found.url);
    });
    return true;
  }

  /** What the service tells of a resource of ours after it was to be moved, under whatever address. @returns false where another has that */
  learn(id: IntentId, resource: ResourceUrl, found: RemoteResource, parent: Inode | undefined): boolean {
    const { store, naming, intents, clock } = this.#deps;
    return store.transact((tx) => {
      const node = ownerOf(tx, resource);
      const owner = tx.get('resource', found.url);
      if (owner !== undefined && owner !== node?.ino) return false;
      intents.end(tx, id);
      if (!node?.remote) return true;
      const { remote } = node;
      // Somewhere we do not know: somebody else moved it, and a listing will say so.
      const stays = parent === undefined || (found.name === remote.name && parent === remote.parent);
      if (stays && found.url === resource) return true;
      const place = stays ? remote : { parent, name: found.name, shownAs: fileNameOf(naming, node, found.name) };
      recordRelocated(tx, resource, { ...place, resource: found.url }, clock.nowMs());
      intents.readdress(tx, resource, found.url);
      return true;
    });
  }

  /** None where the folder is gone. @throws PostponedError where it may only have another address, too */
  async #entriesOf(
    changes: Pick<RemoteChanges, 'list'>,
    parent: Inode,
    folder: ResourceUrl,
    signal: AbortSignal,
  ): Promise<readonly RemoteEntry[]> {
    try {
      return await changes.list(folder, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      this.#deps.outcome.parentMayHaveMoved(parent, folder, error);
      return [];
    }
  }
}

export interface NewAddressDeps {
  readonly store: StoreWriter;
  readonly naming: Pick<RemoteNaming, 'toRemoteName' | 'toFileName'>;
  readonly changes: Pick<RemoteChanges, 'list'>;
  readonly intents: Intents;
  readonly outcome: Pick<NameOutcome, 'parentMayHaveMoved'>;
  readonly clock: Clock;
}

/** Whether an entry can be what the service had of a node: of its kind, and as long. */
function mayBe(node: NodeRecord, remote: RemoteFacet, entry: RemoteEntry): boolean {
  if (entry.kind === 'folder') return node.kind === 'folder';
  return node.kind !== 'folder' && entry.sizeBytes === remote.sizeBytes;
}
