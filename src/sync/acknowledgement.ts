import type { Clock } from '../base/clock.ts';
import { ProtocolError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { RemoteVersion } from '../base/resources.ts';
import {
  type ContentId,
  type Inode,
  type IntentId,
  type ResourceUrl,
  ROOT_INODE,
  timespecOfMs,
  type VersionUrl,
} from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { Intent, Intents } from '../store/intents.ts';
import { listAnew, newInode, removeNode, writeNode } from '../store/node-table.ts';
import { reportedTime, type ServiceTime } from '../store/service-time.ts';
import type { LocalFacet, NodeRecord, RemoteFacet, StoreWriter, Transaction } from '../store/tables.ts';
import { type CopiedBytes, conflictName } from '../tree/conflict-name.ts';
import { judgeHistory, knownOf, ownAmong, type Verdict } from './conflict.ts';
import { ownerOf } from './outcome.ts';
import type { OnTreeChange } from './remote-naming.ts';
import { pathOf, type SyncEvent } from './sync-event.ts';

export interface AcknowledgementDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly intents: Intents;
  readonly onEvent: (event: SyncEvent) => void;
  readonly onTreeChange: OnTreeChange;
  /** The push made another node dirty. */
  readonly onDirty: (ino: Inode) => void;
  /** A draft became a version on the service, and the response did not name the version. */
  readonly onNameless: (content: ContentId) => void;
  readonly clock: Clock;
  readonly log: Logger;
  readonly host: string;
}

/**
 * Stores an acknowledged upload, in one record: the draft becomes the version, the file gets it, the intent ends. If another client made a
 * version meanwhile, both are kept.
 */
export class Acknowledgement {
  readonly #deps: AcknowledgementDeps;

  constructor(deps: AcknowledgementDeps) {
    this.#deps = deps;
  }

  /** The service has the first bytes of a file that we created. Their version is not known. */
  ofFill(id: IntentId, ino: Inode, file: ResourceUrl, content: ContentId, modified: ServiceTime | null): void {
    const { store, contents, intents, clock, onEvent } = this.#deps;
    const sizeBytes = contents.sizeOf(content);
    store.transact((tx) => {
      const node = ownerOf(tx, file);
      if (node?.remote) {
        // Reading the version's URL costs a request for each small file. The draft stays a draft until the cache needs its
        // space (`UnidentifiedVersions`). A version of another file is not kept under this one's name: it is fetched when it is needed.
        const record = tx.get('content', content);
        const isDraft = record?.kind === 'draft';
        if (isDraft) {
          tx.put('content', content, { ...record, resource: file });
          tx.afterCommit(() => this.#deps.onNameless(content));
        }
        const remote = { ...node.remote, content: isDraft ? content : null, sizeBytes, modified };
        const isSame = node.local !== null && node.local.content === content;
        const local = isSame && node.local !== null && !isDraft ? { ...node.local, content: null } : node.local;
        writeNode(tx, node, { ...node, local, remote }, clock.nowMs());
      }
      intents.end(tx, id);
    });
    onEvent({ type: 'uploaded', path: pathOf(store, store.get('resource', file) ?? ino), version: 1, sizeBytes });
  }

  /** A version is complete. One record makes the draft that version; nothing is fetched back. */
  ofVersion(
    { id, owner: ino }: Intent,
    file: ResourceUrl,
    content: ContentId,
    version: VersionUrl,
    history: readonly RemoteVersion[],
  ): void {
    const { store, contents, intents, onEvent, onTreeChange, onDirty } = this.#deps;
    const sizeBytes = contents.sizeOf(content);
    const owner = store.get('resource', file);
    const before = owner === undefined ? undefined : store.get('node', owner);
    const abandoned = intents.abandonedOf(file);
    const obsolete = ownAmong(history, abandoned, version);
    const verdict = judgeHistory(history, version, knownOf(store, before?.remote ?? null), obsolete);
    if (verdict.type === 'unknown') throw new ProtocolError('the history of the file lacks the version just completed');
    const own = history.find(({ url }) => url === version) ?? null;
    const copies = store.transact((tx) => {
      const node = ownerOf(tx, file);
      const isOnly = own !== null && history.every(({ url }) => url === version || obsolete.has(url));
      const copied = node === undefined ? [] : this.#settle(tx, node, content, version, verdict, own, isOnly);
      intents.end(tx, id);
      // A length identifies a version only until the next one. A URL does so permanently.
      for (const each of abandoned) if (each.version === null) intents.end(tx, each.id);
      return copied;
    });
    const path = pathOf(store, owner ?? ino);
    const count = history.filter((entry) => entry.complete).length;
    if (verdict.type === 'ours') {
      onEvent({ type: 'uploaded', path, version: count < HISTORY_VERSIONS ? count : null, sizeBytes });
    } else if (before?.local) {
      onTreeChange([{ kind: 'inode', ino: before.ino, was: before.local }]);
    }
    for (const copy of copies) {
      if (!copy.local) continue;
      onDirty(copy.ino);
      onTreeChange([{ kind: 'entry', parent: copy.local.parent, name: copy.local.name }]);
      onEvent({ type: 'conflict', path, copy: pathOf(store, copy.ino) });
    }
  }

  /**
   * @param isOnly the file has no other version
   * @returns the conflicted copies that were made
   */
  #settle(
    tx: Transaction,
    node: NodeRecord,
    content: ContentId,
    version: VersionUrl,
    verdict: Exclude<Verdict, { type: 'unknown' }>,
    own: RemoteVersion | null,
    isOnly: boolean,
  ): readonly NodeRecord[] {
    const { contents, clock } = this.#deps;
    if (!node.remote) return [];
    const nowMs = clock.nowMs();
    const file = node.remote.resource;
    // A lost creation, found by intent recovery: only now is the file known to be ours. A later rename over another file counts as a save.
    const isFound = isOnly && node.remote.createdHereMs === null && node.remote.sizeBytes === null;
    const isOurs = verdict.type === 'ours';
    const copies: NodeRecord[] = [];
    if (verdict.under !== null) {
      // This also holds if the file was deleted here meanwhile: neither a user here nor the other client has seen the version that ours
      // replaced.
      const { url, sizeBytes, lastModifiedMs } = verdict.under;
      const under = contents.versionContent(tx, url, file, sizeBytes);
      const shown = { ...node, local: node.local ?? this.#placeOf(tx, node.remote) };
      const copied = { content: under, sizeBytes, mtimeMs: lastModifiedMs ?? nowMs, bytes: 'others' } as const;
      copies.push(...this.#copy(tx, shown, copied, nowMs));
    }
    if (node.local === null && !isOurs) {
      // The file was deleted here during the upload, and another client saved it since. The deletion is dropped, and the next listing of the
      // folder shows the file again.
      listAnew(tx, node.remote.parent);
      removeNode(tx, node, nowMs);
      return copies;
    }
    const isDraft = tx.get('content', content)?.kind === 'draft';
    const newest = verdict.version;
    if (!isOurs && node.local !== null && node.local.content !== content) {
      copies.push(...this.#settleUnder(tx, node, content, version, verdict.oursIsKept ? own : null));
      return copies;
    }
    let adopted = content;
    if (!isOurs) adopted = contents.versionContent(tx, newest.url, file, newest.sizeBytes);
    // The bytes of a file that was deleted here may also be those of a local-only file. They remain a draft, which is never evicted.
    else if (isDraft && node.local !== null) contents.adopt(tx, content, version, file);
    // The bytes were another file's version (a conflicted copy). This file gets a content of its own for its version.
    else adopted = contents.versionContent(tx, version, file, newest.sizeBytes);

    const remote = {
      ...node.remote,
      content: adopted,
      sizeBytes: newest.sizeBytes,
      modified: reportedTime(newest.lastModifiedMs),
      ...(isFound && { createdHereMs: nowMs }),
    };
    let { local } = node;
    if (local !== null && !isOurs && !verdict.oursIsKept) {
      copies.push(...this.#copy(tx, node, this.#own(content, nowMs), nowMs));
    }
    if (local !== null && local.content === content && adopted !== content) {
      local = { ...local, content: adopted, sizeBytes: newest.sizeBytes };
      if (!isOurs)
        local = { ...local, mtime: timespecOfMs(newest.lastModifiedMs ?? nowMs), ctime: timespecOfMs(nowMs) };
    }
    if (!isOurs && isDraft && verdict.oursIsKept) contents.adopt(tx, content, version, file);
    writeNode(tx, node, { ...node, local, remote }, nowMs);
    return copies;
  }

  /**
   * Another client's version is the newest, and this file was changed here after the uploaded draft was frozen. The other version stays
   * unknown until the present bytes are pushed, as after a listing: recorded as their base, it would be replaced without a conflicted copy.
   *
   * @param kept our version in the history; null: the history lacks it, and our bytes become a copy
   */
  #settleUnder(
    tx: Transaction,
    node: NodeRecord,
    content: ContentId,
    version: VersionUrl,
    kept: RemoteVersion | null,
  ): readonly NodeRecord[] {
    const { contents, clock } = this.#deps;
    if (!node.remote) return [];
    const nowMs = clock.nowMs();
    const { resource } = node.remote;
    let remote: RemoteFacet = { ...node.remote, createdHereMs: null };
    let copies: readonly NodeRecord[] = [];
    if (kept === null) {
      copies = this.#copy(tx, node, this.#own(content, nowMs), nowMs);
    } else {
      const isDraft = tx.get('content', content)?.kind === 'draft';
      if (isDraft) contents.adopt(tx, content, version, resource);
      const known = isDraft ? content : contents.versionContent(tx, version, resource, kept.sizeBytes);
      remote = { ...remote, content: known, sizeBytes: kept.sizeBytes, modified: reportedTime(kept.lastModifiedMs) };
    }
    writeNode(tx, node, { ...node, remote }, nowMs);
    return copies;
  }

  /** Where a node that was deleted here would be shown. */
  #placeOf(tx: Transaction, { parent, shownAs }: RemoteFacet): LocalFacet | null {
    const root = tx.get('node', ROOT_INODE)?.local;
    if (root == null) return null;
    const folder = tx.get('node', parent);
    const isThere = folder?.kind === 'folder' && folder.local !== null;
    return { ...root, parent: isThere ? parent : ROOT_INODE, name: shownAs, mode: 0o644 };
  }

  #own(content: ContentId, nowMs: number): Copied {
    return { content, sizeBytes: this.#deps.contents.sizeOf(content), mtimeMs: nowMs, bytes: 'own' };
  }

  /** Makes a file beside `node` with the bytes that `node` does not show. It is pushed like any new file. */
  #copy(
    tx: Transaction,
    { local, kind, localOnly }: NodeRecord,
    { content, sizeBytes, mtimeMs, bytes }: Copied,
    nowMs: number,
  ): readonly NodeRecord[] {
    if (local === null) return [];
    const { host, log } = this.#deps;
    const isTaken = (name: string): boolean => tx.get('name', [local.parent, name]) !== undefined;
    const copy: NodeRecord = {
      ino: newInode(tx),
      kind,
      localOnly,
      local: {
        ...local,
        name: conflictName(local.name, { nowMs, host, bytes, isTaken }),
        mtime: timespecOfMs(mtimeMs),
        ctime: timespecOfMs(nowMs),
        xattrs: null,
        content,
        sizeBytes,
      },
      remote: null,
    };
    writeNode(tx, undefined, copy, nowMs);
    log.info({ ino: copy.ino }, 'the file was changed here and elsewhere; both versions are kept');
    return [copy];
  }
}

/** The content of a conflicted copy. */
interface Copied {
  readonly content: ContentId;
  readonly sizeBytes: number;
  readonly mtimeMs: number;
  readonly bytes: CopiedBytes;
}

/** "Up to five historical versions are kept" (docs/service.md 13.7) beside the newest one. A history of this length may be incomplete. */
const HISTORY_VERSIONS = 6;
