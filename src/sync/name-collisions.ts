import type { Clock } from '../base/clock.ts';
import type { RemoteEntry } from '../base/resources.ts';
import type { Inode, NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import { isMoved } from '../store/node-table.ts';
import type { StoreWriter } from '../store/tables.ts';
import { conflictName } from '../tree/conflict-name.ts';
import type { Place } from './collision-memory.ts';
import type { DirtyIndex } from './dirty-index.ts';
import { recordRelocated } from './outcome.ts';
import { PostponedError } from './push-failure.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { RemoteNaming } from './remote-naming.ts';

/** A name that the service refused, with the node and the place that it was for. */
export interface RefusedName {
  readonly ino: Inode;
  readonly kind: NodeKind;
  /** The resource that was to get the name; null for a creation. */
  readonly self: ResourceUrl | null;
  readonly folder: ResourceUrl;
  readonly name: string;
  /** The same place by its local name. */
  readonly place: Place;
}

/** Another node has the name that `asker` wants for that place, and is about to leave it. */
export type OnInTheWay = (ino: Inode, asker: Inode, place: Place) => void;

export type WayAround =
  /** The folder exists on both sides: use it. */
  | { readonly type: 'adopt'; readonly url: ResourceUrl }
  /** Request another name. The file keeps its own name here. */
  | { readonly type: 'rename'; readonly name: string }
  /**
   * `again`: no entry has the name any more, so request it again. `self`: the node's own old name is the obstacle, on a service that folds
   * case.
   */
  | { readonly type: 'again' | 'self' };

/**
 * Resolves name collisions with entries that no dirty node of ours explains: another client was faster, or the service folds case. Lists the
 * folder once.
 */
export class NameCollisions {
  readonly #deps: NameCollisionsDeps;

  constructor(deps: NameCollisionsDeps) {
    this.#deps = deps;
  }

  /** @throws PostponedError if the name is about to be free · what `RemoteChanges.list` throws */
  async wayAround({ ino, kind, self, folder, name, place }: RefusedName, signal: AbortSignal): Promise<WayAround> {
    const { store, changes, host, clock, index } = this.#deps;
    const entries = await changes.list(folder, signal);
    const holders = entries.filter((entry) => folded(entry.name) === folded(name));
    if (holders.length === 0) return { type: 'again' };
    if (holders.every((holder) => holder.url === self)) return { type: 'self' };
    for (const holder of holders) {
      const owner = store.get('resource', holder.url);
      if (owner !== undefined && owner !== ino && index.has(owner)) {
        // The holder is moving away, or another client renamed it. In the second case the plan needs its new place to resolve the collision.
        this.#learnPlace(owner, holder, folder);
        if (this.#isLeaving(owner)) {
          this.#deps.onInTheWay(owner, ino, place);
          throw new PostponedError('the name is about to be free');
        }
      }
      const isNew = owner === undefined && self === null;
      if (isNew && kind === 'folder' && holder.kind === 'folder' && holder.name === name) {
        return { type: 'adopt', url: holder.url };
      }
    }
    const taken = new Set(entries.map((entry) => folded(entry.name)));
    const isTaken = (other: string): boolean => taken.has(folded(other));
    return { type: 'rename', name: conflictName(name, { nowMs: clock.nowMs(), host, bytes: 'own', isTaken }) };
  }

  /** A node whose name or folder changes, or which is deleted. Not a node that only uploads bytes, which may take days, nor a parked one. */
  #isLeaving(ino: Inode): boolean {
    const { store } = this.#deps;
    const node = store.get('node', ino);
    if (!node?.remote || store.get('dirty', ino)?.parked != null) return false;
    return node.local === null || isMoved(node.local, node.remote);
  }

  /** The service has a node of ours at another place than recorded. */
  #learnPlace(ino: Inode, entry: RemoteEntry, folder: ResourceUrl): void {
    const { store, intents, naming, clock, onDirty } = this.#deps;
    const parent = store.get('resource', folder);
    const remote = store.get('node', ino)?.remote;
    if (parent === undefined || !remote || intents.ownedBy(ino) !== undefined) return;
    if (remote.parent === parent && remote.name === entry.name) return;
    const place = { resource: entry.url, parent, name: entry.name, shownAs: naming.toFileName(entry.name) };
    store.transact((tx) => recordRelocated(tx, entry.url, place, clock.nowMs()));
    onDirty(ino);
  }
}

export interface NameCollisionsDeps {
  readonly store: StoreWriter;
  readonly naming: RemoteNaming;
  readonly changes: Pick<RemoteChanges, 'list'>;
  readonly intents: Intents;
  readonly index: DirtyIndex;
  readonly clock: Clock;
  readonly onDirty: (ino: Inode) => void;
  readonly onInTheWay: OnInTheWay;
  readonly host: string;
}

/** The form of a name that services which fold case compare. */
function folded(name: string): string {
  return name.normalize('NFC').toLowerCase();
}
