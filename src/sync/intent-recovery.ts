import { ApiError } from '../base/errors.ts';
import type { RemoteEntry } from '../base/resources.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Intent, Intents } from '../store/intents.ts';
import { isTrashFolder } from '../store/local-trash.ts';
import type { StoreWriter } from '../store/tables.ts';
import type { DirtyIndex } from './dirty-index.ts';
import type { NameOutcome } from './name-outcome.ts';
import { fileNameOf, folderOf } from './outcome.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { RemoteNaming } from './remote-naming.ts';
import type { Takeover } from './takeover.ts';
import type { UrlChange } from './url-change.ts';

/**
 * Recovers an intent of a creation, a move or a deletion whose response was lost: reads from the service what the request has done, also after
 * a crash, before anything is repeated.
 */
export class IntentRecovery {
  readonly #deps: IntentRecoveryDeps;

  constructor(deps: IntentRecoveryDeps) {
    this.#deps = deps;
  }

  /** Afterwards the remote facet is correct, and the intent has ended. */
  async findOut(ino: Inode, intent: Intent, signal: AbortSignal): Promise<void> {
    const { changes, intents, store } = this.#deps;
    if (intent.action === 'copy-file' || intent.action === 'restore')
      return this.#deps.takeover.findOut(intent, signal);
    if (intent.resource === null) {
      await this.#findCreated(ino, intent, signal);
      return;
    }
    const owner = store.get('resource', intent.resource);
    const node = owner === undefined ? undefined : store.get('node', owner);
    if (!node?.remote) {
      intents.forget(intent.id);
      return;
    }
    const { parent } = node.remote;
    const parentResource = store.get('node', parent)?.remote?.resource;
    const found = await changes.resource(intent.resource, node.kind, signal);
    const foundParent = folderOf(store, found?.parent);
    if (node.local === null && isTrashFolder(store, parent)) {
      // A permanent deletion in the trash: the plan repeats it, unless the resource was restored.
      if (found === null) this.#deps.outcome.deleted(intent.id, intent.resource, this.#tombstonesBelow(ino));
      else intents.forget(intent.id);
      return;
    }
    if (intent.action === 'trash') {
      // Its own folder may have another URL by now: then the node is still in it, not in the trash.
      if (found?.parent != null && foundParent === undefined && parentResource !== undefined)
        this.#deps.outcome.parentMayHaveMoved(parent, parentResource);
      if (found === null) await this.#deps.outcome.mustBeGone(intent.resource, signal);
      if (found === null || (found.parent !== null && foundParent === undefined)) {
        this.#deps.outcome.deleted(intent.id, intent.resource, this.#tombstonesBelow(ino));
      } else {
        intents.forget(intent.id);
      }
      return;
    }
    await this.#deps.urlChange.recover(intent.id, intent.resource, found, signal);
  }

  async #findCreated(ino: Inode, intent: Intent, signal: AbortSignal): Promise<void> {
    const { store, naming, changes, intents } = this.#deps;
    const { parentResource, name } = intent;
    const parent = parentResource === null ? undefined : store.get('resource', parentResource);
    if (parentResource === null || name === null || parent === undefined) {
      intents.forget(intent.id);
      return;
    }
    let entries: readonly RemoteEntry[];
    try {
      entries = await changes.list(parentResource, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      // If the folder may only have another URL by now, the created node is there.
      await this.#deps.outcome.parentMissing(parent, parentResource, error, signal);
      intents.forget(intent.id);
      return;
    }
    const isFolder = intent.action === 'create-folder';
    const ours = entries.find(
      (entry) =>
        entry.name === name &&
        (entry.kind === 'folder') === isFolder &&
        // A file with bytes is not one that we created and never filled.
        (entry.kind === 'folder' || !entry.presentOnServer) &&
        store.get('resource', entry.url) === undefined,
    );
    if (ours === undefined) {
      intents.forget(intent.id);
      return;
    }
    const node = store.get('node', ino);
    const kind = node?.kind ?? (isFolder ? 'folder' : 'file');
    const made = { url: ours.url, parent, name, fileName: fileNameOf(naming, node, name) };
    this.#deps.outcome.created(intent.id, ino, kind, made, 'found');
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

export interface IntentRecoveryDeps {
  readonly store: StoreWriter;
  readonly naming: RemoteNaming;
  readonly changes: Pick<RemoteChanges, 'resource' | 'list'>;
  readonly intents: Intents;
  readonly index: DirtyIndex;
  readonly outcome: NameOutcome;
  readonly urlChange: UrlChange;
  readonly takeover: Takeover;
}
