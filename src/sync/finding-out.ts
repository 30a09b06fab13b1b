import { ApiError } from '../base/errors.ts';
import type { RemoteEntry } from '../base/resources.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { StoreWriter, UploadRecord } from '../store/tables.ts';
import type { DirtyIndex } from './dirty-index.ts';
import type { Intents } from './intents.ts';
import type { NameOutcome } from './name-outcome.ts';
import type { NewAddress } from './new-address.ts';
import { fileNameOf, folderOf } from './outcome.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { RemoteNaming } from './remote-naming.ts';

/**
 * Asks what a push of names did whose answer never came: by what its intent says it was to do, also after a crash, and before
 * anything is repeated.
 */
export class FindingOut {
  readonly #deps: FindingOutDeps;

  constructor(deps: FindingOutDeps) {
    this.#deps = deps;
  }

  /** Afterwards the remote facet is right, and the intent is gone. */
  async findOut(ino: Inode, record: UploadRecord, signal: AbortSignal): Promise<void> {
    const { changes, intents, store } = this.#deps;
    if (record.resource === null) {
      await this.#findCreated(ino, record, signal);
      return;
    }
    const owner = store.get('resource', record.resource);
    const node = owner === undefined ? undefined : store.get('node', owner);
    if (!node?.remote) {
      intents.forget(ino);
      return;
    }
    const { parent } = node.remote;
    const parentResource = store.get('node', parent)?.remote?.resource;
    const found = await changes.resource(record.resource, node.kind, signal);
    const foundParent = folderOf(store, found?.parent);
    if (record.action === 'trash') {
      // Its own folder may have another address by now: then it is nowhere else, and not in the trash.
      if (found?.parent != null && foundParent === undefined && parentResource !== undefined)
        this.#deps.outcome.parentMayHaveMoved(parent, parentResource);
      if (found === null) await this.#deps.outcome.mustBeGone(record.resource, signal);
      if (found === null || (found.parent !== null && foundParent === undefined)) {
        this.#deps.outcome.deleted(ino, record.resource, this.#tombstonesBelow(ino));
      } else {
        intents.forget(ino);
      }
      return;
    }
    const { resource } = record;
    const isKnown =
      found !== null
        ? this.#deps.newAddress.learn(ino, resource, found, foundParent)
        : await this.#deps.newAddress.find(ino, resource, signal);
    if (isKnown) return;
    await this.#deps.outcome.mustBeGone(resource, signal);
    this.#deps.outcome.gone(ino, resource);
  }

  async #findCreated(ino: Inode, record: UploadRecord, signal: AbortSignal): Promise<void> {
    const { store, naming, changes, intents } = this.#deps;
    const { parentResource, name } = record;
    const parent = parentResource === null ? undefined : store.get('resource', parentResource);
    if (parentResource === null || name === null || parent === undefined) {
      intents.forget(ino);
      return;
    }
    let entries: readonly RemoteEntry[];
    try {
      entries = await changes.list(parentResource, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      // Where the folder may only have another address by now, what was made is there.
      await this.#deps.outcome.parentMissing(parent, parentResource, error, signal);
      intents.forget(ino);
      return;
    }
    const isFolder = record.action === 'create-folder';
    const ours = entries.find(
      (entry) =>
        entry.name === name &&
        (entry.kind === 'folder') === isFolder &&
        // A file that has bytes already is not one that we made and never filled.
        (entry.kind === 'folder' || !entry.presentOnServer) &&
        store.get('resource', entry.url) === undefined,
    );
    if (ours === undefined) {
      intents.forget(ino);
      return;
    }
    const node = store.get('node', ino);
    const kind = node?.kind ?? (isFolder ? 'folder' : 'file');
    const made = { url: ours.url, parent, name, fileName: fileNameOf(naming, node, name) };
    this.#deps.outcome.created(ino, kind, made, 'found');
  }

  #tombstonesBelow(ino: Inode): readonly Inode[] {
    const { index, store } = this.#deps;
    const found = new Set<Inode>();
    for (let at: Inode | undefined = ino, todo: Inode[] = []; at !== undefined; at = todo.pop()) {
      for (const child of index.remoteChildren(at)) {
        const node = store.get('node', child);
        if (node === undefined || node.local !== null || child === ino || found.has(child)) continue;
        found.add(child);
        if (node.kind === 'folder') todo.push(child);
      }
    }
    return [...found];
  }
}

export interface FindingOutDeps {
  readonly store: StoreWriter;
  readonly naming: RemoteNaming;
  readonly changes: Pick<RemoteChanges, 'resource' | 'list'>;
  readonly intents: Intents;
  readonly index: DirtyIndex;
  readonly outcome: NameOutcome;
  readonly newAddress: NewAddress;
}
