import { FsError } from '../base/errors.ts';
import type { FolderPlace, ListingPage, RemoteEntry, RemoteResource } from '../base/resources.ts';
import { type Inode, type NodeKind, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import { upwards } from '../store/node-table.ts';
import type { StoreWriter } from '../store/tables.ts';
import type { RemoteListing } from './remote-listing.ts';

/** Where a node lies: in the user's own folders, in a folder that was made to show something, or in a share. */
type Zone =
  | { readonly kind: 'own' }
  | { readonly kind: 'made' }
  | { readonly kind: 'share'; readonly folder: Inode; readonly readOnly: boolean };

const OWN: Zone = { kind: 'own' };
const MADE: Zone = { kind: 'made' };

/**
 * What may be changed where, in a mount of the whole account (`--root account`). The root, `Workspaces` and `Shared with me` are made
 * by the mount; a share is its owner's, and may be for reading only. Refused at once, so that nothing is parked for it later.
 *
 * What the listings said of folders is kept in the store: it holds offline and after a restart. Asked by operations that change
 * something, by no other.
 */
export class AccountPlaces {
  readonly #store: StoreWriter;

  constructor(deps: { store: StoreWriter }) {
    this.#store = deps.store;
  }

  /** The same listing, whose folders are taken note of. */
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

  /** @throws FsError EPERM where nothing is made, renamed or removed · EROFS in a share that may only be read */
  mayChangeNames(folder: Inode): void {
    const zone = this.#zoneOf(folder);
    if (zone.kind === 'made') throw new FsError('EPERM', 'folders of the account are made and removed by the service');
    this.#mustBeWritable(zone);
  }

  /** @throws FsError EROFS in a share that may only be read */
  mayWrite(ino: Inode): void {
    this.#mustBeWritable(this.#zoneOf(ino));
  }

  /** @throws FsError EXDEV where the service moves nothing: into a share, out of it, from one to another */
  mayMove(folder: Inode, newFolder: Inode): void {
    if (folder === newFolder) return;
    const from = this.#zoneOf(folder);
    const to = this.#zoneOf(newFolder);
    const isSame = from.kind === 'share' && to.kind === 'share' ? from.folder === to.folder : from.kind === to.kind;
    if (!isSame) throw new FsError('EXDEV', 'nothing moves between accounts');
  }

  #mustBeWritable(zone: Zone): void {
    if (zone.kind === 'share' && zone.readOnly) throw new FsError('EROFS', 'shared for reading only');
  }

  #zoneOf(ino: Inode): Zone {
    for (const { ino: at, remote } of upwards(this.#store, ino, 'here')) {
      if (at === ROOT_INODE) return at === ino ? MADE : OWN;
      const place = remote === null ? undefined : this.#placeOf(remote.resource);
      if (place === 'made') return at === ino ? MADE : OWN;
      if (place !== undefined) return { kind: 'share', folder: at, readOnly: place === 'read-only' };
    }
    // Gone, and never in a place of its own: whoever asks is told so by the tree.
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
