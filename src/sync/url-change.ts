import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { RemoteEntry, RemoteResource } from '../base/resources.ts';
import type { Inode, IntentId, ResourceUrl } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import type { NodeRecord, RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { NameOutcome } from './name-outcome.ts';
import { fileNameOf, folderOf, ownerOf, recordRelocated, targetOf } from './outcome.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { RemoteNaming } from './remote-naming.ts';

/**
 * Finds a moved resource again. A move may change the address of a resource (docs/service.md 13.1). If the response with the new address was
 * lost, no resource has the old address, and repeating the move gets a 404. That 404 does not mean that the file was deleted.
 */
export class UrlChange {
  readonly #deps: UrlChangeDeps;

  constructor(deps: UrlChangeDeps) {
    this.#deps = deps;
  }

  /**
   * Stores the present place of a resource whose move was not acknowledged, or that it is gone, and ends the intent.
   *
   * @param found the response of its own address
   */
  async recover(id: IntentId, resource: ResourceUrl, found: RemoteResource | null, signal: AbortSignal): Promise<void> {
    const { outcome } = this.#deps;
    const isKnown = found !== null ? this.#learn(id, resource, found) : await this.#find(id, resource, signal);
    if (isKnown) return;
    await outcome.mustBeGone(resource, signal);
    outcome.gone(id, resource);
  }

  /**
   * Looks for a resource of ours whose old address does not exist any more, at the place that the push requested: an entry of that name which
   * belongs to no other node here. If it is found, its address is stored, and the intent ends.
   */
  async #find(id: IntentId, resource: ResourceUrl, signal: AbortSignal): Promise<boolean> {
    const { store, naming, intents, clock } = this.#deps;
    // The present address: that of the folder may have changed since the push began.
    const { parentResource: folder = null, name = null } = intents.get(id) ?? {};
    const parent = folder === null ? undefined : store.get('resource', folder);
    if (folder === null || name === null || parent === undefined) return false;
    const entries = await this.#entriesOf(parent, folder, signal);
    const node = ownerOf(store, resource);
    if (!node?.remote) return false;
    const { remote } = node;
    const found = entries.find(
      (entry) => entry.name === name && mayBe(node, remote, entry) && store.get('resource', entry.url) === undefined,
    );
    if (found === undefined) return false;
    store.transact((tx) => {
      const there = targetOf(tx, intents.get(id), parent);
      const place = { resource: found.url, parent: there, name, shownAs: fileNameOf(naming, node, name) };
      recordRelocated(tx, resource, place, clock.nowMs());
      intents.end(tx, id);
      intents.readdress(tx, resource, found.url);
    });
    return true;
  }

  /** Stores what the service reports about a resource after its move, under any address. @returns false if another node has that address */
  #learn(id: IntentId, resource: ResourceUrl, found: RemoteResource): boolean {
    const { store, naming, intents, clock } = this.#deps;
    const parent = folderOf(store, found.parent);
    return store.transact((tx) => {
      const node = ownerOf(tx, resource);
      const owner = tx.get('resource', found.url);
      if (owner !== undefined && owner !== node?.ino) return false;
      intents.end(tx, id);
      if (!node?.remote) return true;
      const { remote } = node;
      // The place is unknown here: another client moved the resource. A listing will report it.
      const stays = parent === undefined || (found.name === remote.name && parent === remote.parent);
      if (stays && found.url === resource) return true;
      const place = stays ? remote : { parent, name: found.name, shownAs: fileNameOf(naming, node, found.name) };
      recordRelocated(tx, resource, { ...place, resource: found.url }, clock.nowMs());
      intents.readdress(tx, resource, found.url);
      return true;
    });
  }

  /** Empty if the folder is deleted. @throws PostponedError if it may exist, here or under another address */
  async #entriesOf(parent: Inode, folder: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteEntry[]> {
    const { changes, outcome } = this.#deps;
    try {
      return await changes.list(folder, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      outcome.parentMayHaveMoved(parent, folder, error);
      await outcome.folderMustBeGone(parent, folder, error, signal);
      return [];
    }
  }
}

export interface UrlChangeDeps {
  readonly store: StoreWriter;
  readonly naming: Pick<RemoteNaming, 'toRemoteName' | 'toFileName'>;
  readonly changes: Pick<RemoteChanges, 'list'>;
  readonly intents: Intents;
  readonly outcome: Pick<NameOutcome, 'parentMayHaveMoved' | 'folderMustBeGone' | 'mustBeGone' | 'gone'>;
  readonly clock: Clock;
}

/** Whether an entry may be the resource of a node: of its kind and its length. */
function mayBe(node: NodeRecord, remote: RemoteFacet, entry: RemoteEntry): boolean {
  if (entry.kind === 'folder') return node.kind === 'folder';
  return node.kind !== 'folder' && entry.sizeBytes === remote.sizeBytes;
}
