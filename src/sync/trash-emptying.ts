import { ProtocolError } from '../base/errors.ts';
import type { NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import type { RemoteChanges } from './remote-changes.ts';

/** Deletes entries of the trash of the service permanently, for `--empty-trash service`. */
export class TrashEmptying {
  readonly #changes: RemoteChanges;

  constructor(changes: RemoteChanges) {
    this.#changes = changes;
  }

  /** Whether the resource is in the trash: another client may have restored or deleted it. */
  async isInTrash(resource: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<boolean> {
    const trash = await this.#changes.trashFolder(signal);
    const now = await this.#changes.resource(resource, kind, signal);
    if (trash === null || now === null) return false;
    // The service may report the parent under another URL than the user's trash; then the listing decides.
    return now.parent === trash || (await this.#changes.list(trash, signal)).some(({ url }) => url === resource);
  }

  /**
   * Empties a folder in the trash: the service would orphan what a permanent deletion leaves in it. Before each deletion, the folder has to
   * be in the trash still.
   *
   * @returns false if it is not: what was in it then stays
   */
  async emptyFolder(folder: ResourceUrl, signal: AbortSignal): Promise<boolean> {
    return this.#deleteBelow(folder, () => this.isInTrash(folder, 'folder', signal), signal, 0);
  }

  async #deleteBelow(
    folder: ResourceUrl,
    isStillThere: () => Promise<boolean>,
    signal: AbortSignal,
    depth: number,
  ): Promise<boolean> {
    if (depth > DEPTH_MAX) throw new ProtocolError(`${folder}: a folder of the trash contains itself`);
    for (const { url, kind } of await this.#changes.list(folder, signal)) {
      if (kind === 'folder' && !(await this.#deleteBelow(url, isStillThere, signal, depth + 1))) return false;
      if (!(await isStillThere())) return false;
      await this.#changes.deleteForever(url, kind, signal);
    }
    return true;
  }
}

const DEPTH_MAX = 4096;
