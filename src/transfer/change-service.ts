import type { RemoteEntry, RemoteResource } from '../base/resources.ts';
import type { NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import { missingCapability } from '../remote/capability.ts';
import type { RemoteService } from '../remote/contract.ts';
import type { Connectivity } from './connectivity.ts';

/** The changes of names that the sync needs (`RemoteChanges`), across the threads. */
export class ChangeService {
  readonly #service: RemoteService;
  readonly #connectivity: Connectivity;
  #trashFolder: ResourceUrl | null = null;

  constructor(options: { service: RemoteService; connectivity: Connectivity }) {
    this.#service = options.service;
    this.#connectivity = options.connectivity;
  }

  createFolder(parent: ResourceUrl, name: string, signal: AbortSignal): Promise<ResourceUrl> {
    return this.#connectivity.watched(() => this.#service.createFolder(parent, name, signal));
  }

  createFile(parent: ResourceUrl, name: string, mediaType: string, signal: AbortSignal): Promise<ResourceUrl> {
    return this.#connectivity.watched(() => this.#service.createFile(parent, name, mediaType, signal));
  }

  copyFile(source: ResourceUrl, parent: ResourceUrl, name: string, signal: AbortSignal): Promise<ResourceUrl> {
    const { copies } = this.#service;
    if (copies === null) return Promise.reject(missingCapability('copyFile', 'copies no files'));
    return this.#connectivity.watched(() => copies.copyFile(source, parent, name, signal));
  }

  relocate(
    url: ResourceUrl,
    kind: NodeKind,
    parent: ResourceUrl,
    name: string,
    signal: AbortSignal,
  ): Promise<ResourceUrl> {
    return this.#connectivity.watched(() => this.#service.relocate(url, kind, parent, name, signal));
  }

  async moveToTrash(url: ResourceUrl, kind: NodeKind, name: string, signal: AbortSignal): Promise<void> {
    const { trash } = this.#service;
    if (trash === null) throw missingCapability('moveToTrash', 'has no trash');
    await this.#gone(() => trash.moveToTrash(url, kind, name, signal), signal);
  }

  async deleteForever(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<void> {
    await this.#gone(() => this.#service.deleteForever(url, kind, signal), signal);
  }

  async trashFolder(signal: AbortSignal): Promise<ResourceUrl | null> {
    const { trash } = this.#service;
    if (trash === null) return null;
    this.#trashFolder ??= await this.#connectivity.watched(() => trash.trashFolder(signal));
    return this.#trashFolder;
  }

  list(folder: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteEntry[]> {
    return this.#connectivity.watched(() => this.#service.list(folder, signal));
  }

  resource(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null> {
    return this.#gone(() => this.#service.resource(url, kind, signal), signal);
  }

  confirmed(signal: AbortSignal): Promise<void> {
    return this.#connectivity.confirmed('can wait', signal);
  }

  /** A 404 may remove a node here. It counts only after another request has succeeded. */
  async #gone<T>(ask: () => Promise<T | null>, signal: AbortSignal): Promise<T | null> {
    const found = await this.#connectivity.watched(ask);
    if (found === null) await this.#connectivity.confirmed('now', signal);
    return found;
  }
}
