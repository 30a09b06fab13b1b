import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import { ApiError, ProtocolError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { RemoteEntry, RemoteResource } from '../base/resources.ts';
import type { Inode, IntentId, ResourceUrl } from '../base/vocabulary.ts';
import type { Intent, Intents } from '../store/intents.ts';
import { isContentDirty, newInode, removeNode, writeNode } from '../store/node-table.ts';
import { pinnedNodes } from '../store/pinned-nodes.ts';
import { mayBeTimeOf, reportedTime } from '../store/service-time.ts';
import type { NodeRecord, RemoteFacet, StoreReader, StoreWriter, Transaction } from '../store/tables.ts';
import { isBackupName, type NamePlace, type VacatedName, type VacatedNames } from '../tree/vacated-names.ts';
import type { NameOutcome } from './name-outcome.ts';
import { mustBeUnknown, ownerOf, recordSurplus, targetOf, temporaryName } from './outcome.ts';
import { hadNoEffect, PostponedError } from './push-failure.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { RemoteNaming } from './remote-naming.ts';

/**
 * A save takes over the history of the file that had its name, after the service knows that this file was renamed or deleted
 * (ADR 37). Runs at the push of the new file, in place of its creation:
 *
 * | the replaced file | requests | one record |
 * | --- | --- | --- |
 * | has a backup name (`f~`) | read it, copy it under a temporary name, read the copy | the new file gets the resource, the replaced one the copy |
 * | had a backup name, is deleted here | read it | the new file gets the resource |
 * | was removed by unlink(2), is in the trash | read it, move it back | the new file gets the resource |
 *
 * After the record, the plan moves the resource back to its name, renames the copy, and sends the version, as for any moved file. So
 * only the copy and the way back from the trash have intents of their own.
 *
 * If any condition does not hold, or the service refuses, the save goes on as a new file, and a tombstone gets
 * the copy.
 */
export class Takeover {
  readonly #deps: TakeoverDeps;

  constructor(deps: TakeoverDeps) {
    this.#deps = deps;
  }

  /** @returns whether the file is not to be created: it has the replaced file's resource, or it has left its place meanwhile */
  async take({ ino, parent, name }: NamePlace & { readonly ino: Inode }, signal: AbortSignal): Promise<boolean> {
    const { store, vacated, deletion } = this.#deps;
    const place = { parent, name };
    const left = vacated.claimed(place);
    if (left === undefined || left.kind !== 'file' || deletion === 'forever') return false;
    const isTaken = await this.#attempt(ino, place, left, signal);
    vacated.forget(place);
    return isTaken || !isReplacing(store.get('node', ino), place);
  }

  /** Recovers the intent of a copy, or of a way back from the trash, whose response was lost. Continues the take-over or gives it up. */
  async findOut(intent: Intent, signal: AbortSignal): Promise<void> {
    if (intent.action === 'restore') await this.#findRestored(intent, signal);
    else await this.#findCopy(intent, signal);
  }

  async #attempt(ino: Inode, place: NamePlace, left: VacatedName, signal: AbortSignal): Promise<boolean> {
    const { store } = this.#deps;
    const folder = store.get('node', place.parent)?.remote?.resource;
    const { resource } = left.remote;
    if (folder === undefined || !isReplacing(store.get('node', ino), place)) return false;
    const from = ownerOf(store, resource);
    if (from === undefined) return await this.#restore(ino, place, folder, left, signal);
    const known = this.#takeable(store, resource, place);
    if (known === null) return false;
    const seen = await this.#look(resource, signal);
    if (!isAsKnown(known, seen) || seen.parent !== folder || seen.name !== known.name || seen.isPublic) return false;
    if (needsItsBytes(from)) return await this.#copy(ino, place, folder, known, signal);
    return store.transact((tx) => {
      const to = tx.get('node', ino);
      const now = this.#takeable(tx, resource, place);
      const owner = ownerOf(tx, resource);
      if (!isReplacing(to, place) || owner === undefined || needsItsBytes(owner) || !isDeepStrictEqual(now, known))
        return false;
      this.#pass(tx, owner, null, to, known);
      return true;
    });
  }

  /** The facet of a replaced file whose resource may be taken over; null if it may not. */
  #takeable(reader: StoreReader, resource: ResourceUrl, { parent, name }: NamePlace): RemoteFacet | null {
    const { intents, isBusy, isOpenForWriting } = this.#deps;
    const from = ownerOf(reader, resource);
    if (!from?.remote || from.kind !== 'file' || from.localOnly) return null;
    const { ino, local, remote } = from;
    // Its rename was pushed, and it was not moved since.
    const isThere = remote.parent === parent && isBackupName(remote.shownAs, name);
    if (!isThere || (local !== null && (local.parent !== parent || local.name !== remote.shownAs))) return null;
    if (isBusy(ino) || intents.ownedBy(ino) !== undefined || reader.get('dirty', ino)?.parked != null) return null;
    return isOpenForWriting(ino) || pinnedNodes(reader).includes(ino) ? null : remote;
  }

  /** What the service has under an address; null if nothing, or if it refuses to say. */
  async #look(resource: ResourceUrl, signal: AbortSignal): Promise<RemoteResource | null> {
    try {
      return await this.#deps.changes.resource(resource, 'file', signal);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      return null;
    }
  }

  /** None where the folder is gone. */
  async #entriesOf(folder: ResourceUrl, parent: Inode, signal: AbortSignal): Promise<readonly RemoteEntry[]> {
    const { changes, outcome } = this.#deps;
    try {
      return await changes.list(folder, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      await outcome.parentMissing(parent, folder, error, signal);
      return [];
    }
  }

  async #copy(
    ino: Inode,
    place: NamePlace,
    folder: ResourceUrl,
    known: RemoteFacet,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { changes, intents, clock } = this.#deps;
    const name = temporaryName(randomBytes(9).toString('base64url'));
    const started = { action: 'copy-file', parentResource: folder, name, resource: known.resource } as const;
    const id = this.#begin(ino, place, started);
    if (id === null) return false;
    const deadline = new AbortController();
    const cancel = clock.after(COPY_MS_MAX, () => deadline.abort());
    let url: ResourceUrl;
    try {
      url = await changes.copyFile(known.resource, folder, name, AbortSignal.any([signal, deadline.signal]));
    } catch (error) {
      const isLate = deadline.signal.aborted && !signal.aborted;
      if (hadNoEffect(error)) intents.forget(id);
      else if (isLate || isRefusal(error)) this.#leave(id);
      if (isLate || isRefusal(error)) return false;
      // The response is lost: `findOut` looks for the name.
      throw error;
    } finally {
      cancel();
    }
    const copy = await this.#look(url, signal);
    if (copy === null) this.#leave(id);
    return copy !== null && this.#copied(id, copy);
  }

  async #findCopy(intent: Intent, signal: AbortSignal): Promise<void> {
    const { store, intents, clock } = this.#deps;
    const { id, parentResource: folder, name, resource } = intent;
    const parent = folder === null ? undefined : store.get('resource', folder);
    if (folder === null || parent === undefined) {
      intents.forget(id);
      return;
    }
    const entries = await this.#entriesOf(folder, parent, signal);
    const found = entries.find((entry) => entry.name === name && store.get('resource', entry.url) === undefined);
    if (found !== undefined) this.#copied(id, found);
    else if (resource !== null) this.#leave(id);
    else if (clock.nowMs() - intent.startedMs < LATE_COPY_MS) throw new PostponedError('a copy may still appear');
    else intents.forget(id);
  }

  /** The service has the copy: the new file gets the replaced one's resource, and that one the copy. Otherwise the copy is deleted. */
  #copied(id: IntentId, copy: RemoteEntry): boolean {
    const { store, intents, clock, vacated, onDirty } = this.#deps;
    return store.transact((tx) => {
      const intent = intents.get(id);
      const parent = intent?.parentResource == null ? undefined : tx.get('resource', intent.parentResource);
      if (intent === undefined || parent === undefined) return false;
      mustBeUnknown(tx, copy.url);
      intents.end(tx, id);
      const to = tx.get('node', intent.owner);
      const from = intent.resource === null ? undefined : ownerOf(tx, intent.resource);
      const place = { parent, name: to?.local?.name ?? '' };
      const known = intent.resource === null ? null : this.#takeable(tx, intent.resource, place);
      const facet = facetOf(copy, { parent, name: copy.name, shownAs: copy.name });
      if (isReplacing(to, place) && from !== undefined && needsItsBytes(from) && known?.sizeBytes === facet.sizeBytes) {
        vacated.forget(place);
        this.#pass(tx, from, { ...facet, nameBefore: known.name }, to, known);
        return true;
      }
      const surplus = recordSurplus(tx, 'file', facet, clock.nowMs());
      tx.afterCommit(() => onDirty(surplus));
      return false;
    });
  }

  /** @param instead the resource that the replaced file has from now on; null: none */
  #pass(tx: Transaction, from: NodeRecord, instead: RemoteFacet | null, to: NodeRecord, taken: RemoteFacet): void {
    const { clock, log, onDirty } = this.#deps;
    const nowMs = clock.nowMs();
    if (from.local === null && instead === null) removeNode(tx, from, nowMs);
    else {
      // Clean bytes are those of the copy. Its versions have other URLs than the cached ones.
      const local = from.local === null || instead === null ? from.local : { ...from.local, content: null };
      writeNode(tx, from, { ...from, local, remote: instead }, nowMs);
    }
    this.#give(tx, to, taken);
    log.debug({ ino: to.ino, from: from.ino }, 'a save takes over the history of the file that had its name');
    tx.afterCommit(() => onDirty(from.ino));
  }

  #give(tx: Transaction, to: NodeRecord, taken: RemoteFacet): void {
    writeNode(tx, to, { ...to, remote: taken }, this.#deps.clock.nowMs());
    tx.afterCommit(() => this.#deps.onDirty(to.ino));
  }

  async #restore(
    ino: Inode,
    { parent, name }: NamePlace,
    folder: ResourceUrl,
    { how, isPinned, remote }: VacatedName,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { changes, naming, intents } = this.#deps;
    if (how !== 'unlinked' || isPinned) return false;
    const { resource, sizeBytes } = remote;
    const trash = await changes.trashFolder(signal);
    const seen = await this.#look(resource, signal);
    if (trash === null || !isAsKnown(remote, seen) || seen.parent !== trash || seen.isPublic) return false;
    const asked = remote.shownAs === name ? remote.name : naming.toRemoteName(name);
    const started = { action: 'restore', parentResource: folder, name: asked, resource, sizeBytes } as const;
    const id = this.#begin(ino, { parent, name }, started);
    if (id === null) return false;
    try {
      const url = await changes.relocate(resource, 'file', folder, asked, signal);
      const { nameBefore: _, ...known } = remote;
      return this.#restored(id, { ...known, resource: url, parent, name: asked, shownAs: name });
    } catch (error) {
      if (hadNoEffect(error)) intents.forget(id);
      if (!isRefusal(error)) throw error;
      await this.#findRestored(intents.get(id), signal);
      return this.#deps.store.get('node', ino)?.remote != null;
    }
  }

  async #findRestored(intent: Intent | undefined, signal: AbortSignal): Promise<void> {
    if (intent === undefined) return;
    const { store, intents, naming, vacated } = this.#deps;
    const { id, owner, parentResource: folder, name, resource, sizeBytes } = intent;
    const parent = folder === null ? undefined : store.get('resource', folder);
    if (folder === null || parent === undefined || name === null || resource === null) {
      intents.forget(id);
      return;
    }
    const there = await this.#look(resource, signal);
    const entries = there === null ? await this.#entriesOf(folder, parent, signal) : [there];
    // The service may have given it another address.
    const found = entries.find(
      (entry) => entry.kind === 'file' && entry.name === name && entry.sizeBytes === sizeBytes,
    );
    const isThere = found !== undefined && (there === null || there.parent === folder);
    if (!isThere || store.get('resource', found.url) !== undefined) {
      const local = store.get('node', owner)?.local;
      if (local != null) vacated.forget(local);
      intents.forget(id);
      return;
    }
    const shownAs = store.get('node', owner)?.local?.name ?? naming.toFileName(name);
    this.#restored(id, facetOf(found, { parent, name, shownAs }));
  }

  #restored(id: IntentId, remote: RemoteFacet): boolean {
    const { store, intents, clock, vacated, onDirty } = this.#deps;
    return store.transact((tx) => {
      mustBeUnknown(tx, remote.resource);
      const intent = intents.get(id);
      intents.end(tx, id);
      const to = intent === undefined ? undefined : tx.get('node', intent.owner);
      const place = { parent: targetOf(tx, intent, remote.parent), name: remote.shownAs };
      // The bytes of the deleted file are not kept here.
      const taken = { ...remote, parent: place.parent, content: null, createdHereMs: null };
      if (isReplacing(to, place)) {
        vacated.forget(place);
        this.#give(tx, to, taken);
        return true;
      }
      const surplus = recordSurplus(tx, 'file', taken, clock.nowMs());
      tx.afterCommit(() => onDirty(surplus));
      return false;
    });
  }

  /**
   * @returns null if the new file was renamed over another one while the service was asked: it has that file's resource, or its operation in
   *   flight, which this intent would replace. Also if a listing has shown the file that was in the trash
   */
  #begin(
    owner: Inode,
    place: NamePlace,
    started: Pick<Intent, 'action' | 'parentResource' | 'name' | 'resource'> & Partial<Pick<Intent, 'sizeBytes'>>,
  ): IntentId | null {
    const { store, intents, clock } = this.#deps;
    return store.transact((tx) => {
      if (!isReplacing(tx.get('node', owner), place) || intents.ownedBy(owner) !== undefined) return null;
      const isShown = started.resource !== null && tx.get('resource', started.resource) !== undefined;
      if (started.action === 'restore' && isShown) return null;
      return intents.begin(tx, { ...started, owner, content: null }, clock.nowMs());
    });
  }

  /** The save does not wait for the copy any more. The intent goes to an owner that is no node: a copy that it finds is deleted. */
  #leave(id: IntentId): void {
    const { store, intents, clock, vacated, onDirty } = this.#deps;
    const intent = intents.get(id);
    if (intent === undefined) return;
    const local = store.get('node', intent.owner)?.local;
    if (local != null) vacated.forget(local);
    store.transact((tx) => {
      intents.end(tx, id);
      const { action, parentResource, name } = intent;
      const owner = newInode(tx);
      intents.begin(tx, { owner, action, parentResource, name, resource: null, content: null }, clock.nowMs());
      tx.afterCommit(() => onDirty(owner));
    });
  }
}

export interface TakeoverDeps {
  readonly store: StoreWriter;
  readonly intents: Intents;
  readonly vacated: VacatedNames;
  readonly changes: Pick<RemoteChanges, 'copyFile' | 'relocate' | 'resource' | 'list' | 'trashFolder'>;
  readonly naming: RemoteNaming;
  readonly outcome: Pick<NameOutcome, 'parentMissing'>;
  readonly clock: Clock;
  readonly log: Logger;
  /** Whether a push of the node is running. */
  readonly isBusy: (ino: Inode) => boolean;
  readonly isOpenForWriting: (ino: Inode) => boolean;
  /** Another node than the one that is pushed has to be pushed now. */
  readonly onDirty: (ino: Inode) => void;
  readonly deletion: 'trash' | 'forever';
}

function isReplacing(node: NodeRecord | undefined, { parent, name }: NamePlace): node is NodeRecord {
  if (node?.kind !== 'file' || node.localOnly || node.remote !== null) return false;
  return node.local?.parent === parent && node.local.name === name;
}

/** Whether a replaced file shows the bytes of its resource. One that was changed since, or deleted, needs no copy of them. */
function needsItsBytes(from: NodeRecord): boolean {
  return from.local !== null && (from.local.content === null || !isContentDirty(from));
}

function isAsKnown(known: RemoteFacet, seen: RemoteResource | null): seen is RemoteResource {
  if (seen?.kind !== 'file' || seen.url !== known.resource || known.sizeBytes === null) return false;
  return seen.sizeBytes === known.sizeBytes && mayBeTimeOf(known.modified, seen.lastModifiedMs);
}

function facetOf(entry: RemoteEntry, place: Pick<RemoteFacet, 'parent' | 'name' | 'shownAs'>): RemoteFacet {
  const { sizeBytes, lastModifiedMs, mediaType } =
    entry.kind === 'file' ? entry : { sizeBytes: null, lastModifiedMs: null, mediaType: null };
  const modified = reportedTime(lastModifiedMs);
  return { ...place, resource: entry.url, sizeBytes, modified, mediaType, content: null, createdHereMs: null };
}

/** Whether the service, or something in front of it, has answered. */
function isRefusal(error: unknown): boolean {
  return error instanceof ApiError || error instanceof ProtocolError;
}

/** How long a save waits for the copy. */
const COPY_MS_MAX = 10_000;
/** How long a copy that no save waits for may still appear. */
const LATE_COPY_MS = 120_000;
