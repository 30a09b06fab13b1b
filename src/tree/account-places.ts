import { FsError } from '../base/errors.ts';
import type { FolderPlace, ListingPage, RemoteEntry, RemoteResource } from '../base/resources.ts';
import { type Inode, type NodeKind, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import { upwards } from '../store/node-table.ts';
import type { StoreWriter } from '../store/tables.ts';
import type { RemoteListing } from './remote-listing.ts';

/** Location of a node: in the user's own folders, in a synthetic folder, or in a share. */
type Zone =
  | { readonly kind: 'own' }
  | { readonly kind: 'made' }
  | { readonly kind: 'share'; readonly folder: Inode; readonly readOnly: boolean };

const OWN: Zone = { kind: 'own' };
const MADE: Zone = { kind: 'made' };

/**
 * Permissions in a mount of the whole account (`--root account`). The root, `Workspaces` and `Shared with me` are
 * synthetic. A share belongs to its owner and may be read-only. Forbidden changes are refused immediately, so that none
 * is parked later.
 *
 * The places come from listings and are stored: they hold offline and after a restart. Only operations that change
 * something consult them.
 */
export class AccountPlaces {
  readonly #store: StoreWriter;

  constructor(deps: { store: StoreWriter }) {
    this.#store = deps.store;
  }

  /** Wraps a listing and records the places of its folders. */
  noting(listing: RemoteListing): RemoteListing {
    return {
      listPage: async (folder: ResourceUrl, start: number, signal: AbortSignal): Promise<ListingPage> => {
        const page = await listing.listPage(folder, start, signal);
        this.#note(page.entries);
        return page;
      },
      resource: (url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null> =>
        listing.resource(url, kind, signal),
    };
  }

  /** @throws FsError EPERM in a synthetic folder · EROFS in a read-only share */
  mayChangeNames(folder: Inode): void {
    const zone = this.#zoneOf(folder);
    if (zone.kind === 'made') throw new FsError('EPERM', 'only the service creates and removes folders of the account');
    this.#mustBeWritable(zone);
  }

  /** @throws FsError EROFS in a read-only share */
  mayWrite(ino: Inode): void {
    this.#mustBeWritable(this.#zoneOf(ino));
  }

  /** @throws FsError EXDEV for moves that the service does not support: into a share, out of it, between shares */
  mayMove(folder: Inode, newFolder: Inode): void {
    if (folder === newFolder) return;
    const from = this.#zoneOf(folder);
    const to = this.#zoneOf(newFolder);
    const isSame = from.kind === 'share' && to.kind === 'share' ? from.folder === to.folder : from.kind === to.kind;
    if (!isSame) throw new FsError('EXDEV', 'the service does not move files between accounts');
  }

  #mustBeWritable(zone: Zone): void {
    if (zone.kind === 'share' && zone.readOnly) throw new FsError('EROFS', 'this share is read-only');
  }

  #zoneOf(ino: Inode): Zone {
    for (const { ino: at, remote } of upwards(this.#store, ino, 'here')) {
      if (at === ROOT_INODE) return at === ino ? MADE : OWN;
      const place = remote === null ? undefined : this.#placeOf(remote.resource);
      if (place === 'made') return at === ino ? MADE : OWN;
      if (place !== undefined) return { kind: 'share', folder: at, readOnly: place === 'read-only' };
    }
    // The node does not exist: the tree reports that to the caller.
    return OWN;
  }

  #placeOf(folder: ResourceUrl): FolderPlace | undefined {
    return this.#store.get('meta', keyOf(folder)) as FolderPlace | undefined;
  }

  #note(entries: readonly RemoteEntry[]): void {
    const changed = entries.filter((entry) => entry.kind === 'folder' && entry.place !== this.#placeOf(entry.url));
    if (changed.length === 0) return;
    this.#store.transact((tx) => {
      for (const entry of changed) {
        const place = entry.kind === 'folder' ? entry.place : undefined;
        if (place === undefined) tx.remove('meta', keyOf(entry.url));
        else tx.put('meta', keyOf(entry.url), place);
      }
    });
  }
}

function keyOf(folder: ResourceUrl): string {
  return `place:${folder}`;
}
