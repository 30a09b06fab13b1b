import { ApiError, StorageError, TransportError } from '../base/errors.ts';
import type { RemoteVersion } from '../base/resources.ts';
import type { ContentId, Inode, IntentId, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import { layersOf } from '../bytes/content-layers.ts';
import type { Intent } from '../store/intents.ts';
import { writeNode } from '../store/node-table.ts';
import { boundOf, mayBeTimeOf, needsHistory, reportedTime } from '../store/service-time.ts';
import type { RemoteFacet } from '../store/tables.ts';
import { Acknowledgement, type AcknowledgementDeps } from './acknowledgement.ts';
import { isOnlyAbandonedSince, knownOf, ownAmong } from './conflict.ts';
import { type Complete, DraftBody } from './draft-body.ts';
import { mediaTypeOf, SYMLINK_MEDIA_TYPE } from './media-type.ts';
import { ownerOf } from './outcome.ts';
import { hadNoEffect, ParkedError, PostponedError, pushFailureOf } from './push-failure.ts';
import type { RemoteChanges, UploadService } from './remote-changes.ts';
import type { OnSameBytes } from './unchanged-draft.ts';

/**
 * Sends one frozen draft as one version.
 *
 * The first bytes of a file that we created a moment ago, up to 1 MiB, go in one plain PUT (`fill`). It cannot be resumed, and its response
 * does not name the version. All other uploads: POST version, PUT version data, GET history. The intent is stored before the request that
 * needs it, so that an upload continues from what the service holds, in this process or the next. The service is believed over our memory. A version
 * whose URL did not come in a response to us is never written to.
 *
 * | interruption | reaction |
 * | --- | --- |
 * | before the POST of the version was answered | another version is created; the first one stays empty and invisible |
 * | connection cut in the PUT, SIGKILL, suspend | the progress of our version is read, the rest is sent |
 * | the response of the PUT is lost | the same: the version is complete |
 * | an honest *incomplete* | the rest is sent from the number in the response |
 * | 416 | the old PUT is still being served: the progress is read again after a pause |
 * | 403 or 409 for a version that is complete already | the progress is read; complete is complete |
 * | 404 of the version | another version is created |
 * | 404 of the file, which its own address confirms | deleted elsewhere: local changes are recreated as a file (`onGone`) |
 * | 404 of a part of a file that exists | parked |
 * | complete, but of another length | not ours: another version is created; parked when it happens again |
 * | 401, 413, 5xx, 429 | the sync loop waits, parks or asks to sign in; the intent stays |
 * | the plain PUT cut, or its response lost | the file is read: our length present is ours; an empty file gets the PUT again |
 * | the plain PUT delayed, or the file has another length | a version of its own is created: another client may have filled the file |
 * | the plain PUT stored after that | its version is ours, too |
 * | SIGKILL in the plain PUT | the same, and the file is read twice: the data may still be in transit |
 * | the plain PUT repeated, and an earlier one stored after it | both versions are ours |
 * | a file of the draft's layers was moved meanwhile | the progress is read, the rest is sent from its new place |
 * | parked (refused, too large, damaged, base lost), and the file holds other bytes by now | the upload is abandoned; the new bytes are the next version |
 * | the plain PUT acknowledged, and another client saved over it before a listing | the history has our bytes first: theirs is adopted |
 * | the plain PUT acknowledged, and the service lost the bytes | a version of its own is created |
 * | the plain PUT of other bytes is not acknowledged | a version of its own is created: the length of the file proves nothing |
 * | the draft changed meanwhile | the frozen draft is finished; the changes are the next version |
 * | the upload abandoned by a person (`cfs discard`) or a deletion, and complete on the service | its version gets no conflicted copy, and is deleted with the file |
 * | file deleted here meanwhile | the transfer of a version ends once the deletion has settled (`plan`), a plain PUT at its end |
 * | the history lost (or crash before it) | the version is complete, the history is read again |
 * | power cut after anything was sent | as after SIGKILL: the draft was on the disk before its first byte was sent (`DraftBody`) |
 *
 * Each row has its test in test/sync/upload-session.test.ts, the last one in test/sync/upload-session-syncs.test.ts, those of
 * saves between two steps in test/sync/interleavings.test.ts. The phases of the intent: `store/intent-phase`.
 */
export class UploadSession {
  readonly #deps: UploadSessionDeps;
  readonly #body: DraftBody;
  readonly #acknowledgement: Acknowledgement;

  constructor(deps: UploadSessionDeps) {
    this.#deps = deps;
    this.#body = new DraftBody(deps);
    this.#acknowledgement = new Acknowledgement(deps);
  }

  /**
   * Makes the node's present bytes, or the draft that an earlier attempt froze, the newest version of its file. Resolves when the service's
   * acknowledgement is stored, or when there is nothing to push any more.
   */
  async push(ino: Inode, signal: AbortSignal): Promise<void> {
    const { contents, intents, store } = this.#deps;
    const upload = uploadOf(intents.ownedBy(ino) ?? this.#freeze(ino));
    if (upload === null) return;
    const { id, file, content } = upload;
    // The draft, and the cached blocks below it, stay while they are sent, however long that takes: the body
    // names places in their files, and an evicted block would be sent as zeros.
    const lease = contents.lease(content, 'copying');
    try {
      if (upload.action === 'fill') await this.#fill(upload, signal);
      else await this.#makeVersion(upload, signal);
    } catch (error) {
      if (error instanceof FileGone) this.#deps.onGone(id, file);
      else if (!isForPerson(error) || !this.#isWrittenAnew(file, content)) throw error;
      // A version in the history is finished: the next one is made over it.
      else if (await this.#isComplete(id, signal)) throw error;
      // Too large, refused, damaged, or without its base: it would block the newer bytes permanently.
      else store.transact((tx) => intents.abandon(tx, id));
    } finally {
      lease.release();
    }
  }

  /**
   * Whether a file that seems to differ from `remote` was changed by abandoned uploads at most. Reads the history only if there were any, or
   * if every time counts as a change: they may be forgotten.
   */
  async isOnlyAbandoned(remote: RemoteFacet, signal: AbortSignal): Promise<boolean> {
    const { store, intents, uploads } = this.#deps;
    const abandoned = intents.abandonedOf(remote.resource);
    if (abandoned.length === 0 && !needsHistory(remote.modified)) return false;
    try {
      const history = await uploads.versions(remote.resource, signal);
      return isOnlyAbandonedSince(history, knownOf(store, remote), ownAmong(history, abandoned, null));
    } catch (error) {
      // The resource is gone, or is none that has a history.
      if (error instanceof ApiError && error.status === 404) return false;
      throw error;
    }
  }

  /** The draft does not change any more; later writes make a second draft over it. */
  #freeze(ino: Inode): Intent | null {
    const { store, contents, intents, clock, plainPutMaxBytes } = this.#deps;
    const id = store.transact((tx) => {
      let node = tx.get('node', ino);
      if (!node?.local || !node.remote) return null;
      const { remote } = node;
      if (node.local.content === null) {
        // It shows the newest version of the service: there is nothing to send.
        if (remote.sizeBytes !== null) return null;
        // Created here and never written to: an empty file has a version, too.
        const content = contents.inlineContent(tx, new Uint8Array(0));
        const after = { ...node, local: { ...node.local, content } };
        writeNode(tx, node, after, clock.nowMs());
        node = after;
      }
      if (!node.local?.content) return null;
      let { content } = node.local;
      const bytes = tx.get('content', content);
      if (bytes?.kind === 'version') {
        // Another file's version (a conflicted copy, an old file that a save renamed away). A draft over it becomes this one's,
        // and its cached bytes stay here.
        const was = content;
        const draft = contents.createDraft(tx, { content: was, sizeBytes: bytes.sizeBytes });
        tx.afterCommit(() => this.#deps.onSameBytes?.(ino, was, draft));
        content = draft;
        const after = { ...node, local: { ...node.local, content } };
        writeNode(tx, node, after, clock.nowMs());
        node = after;
      }
      if (contents.isBeingWritten(content)) throw new PostponedError('a program is writing the file');
      if (!tx.get('content', content)?.sealed) contents.seal(tx, content);
      const frozen = tx.get('content', content);
      if (frozen !== undefined && node.local !== null && frozen.sizeBytes !== node.local.sizeBytes) {
        // Pushed while it is open: sealed with the writes since the last flush.
        const local = { ...node.local, sizeBytes: frozen.sizeBytes };
        writeNode(tx, node, { ...node, local }, clock.nowMs());
      }
      const isFirst = remote.sizeBytes === null && this.#isMadeJustNow(remote);
      // A draft over a base becomes a version with a known URL: only then its base can be released. So does a draft that follows an abandoned
      // fill: the length of the file could be that one's.
      const isAlone =
        (frozen?.base ?? null) === null &&
        intents.abandonedOf(remote.resource).every(({ resource }) => resource === null);
      const isPlain = isFirst && isAlone && (frozen?.sizeBytes ?? 0) <= plainPutMaxBytes;
      const started = {
        ...{ owner: ino, parentResource: null, name: null, resource: remote.resource, content },
        action: isPlain ? ('fill' as const) : ('new-version' as const),
      };
      return intents.begin(tx, started, clock.nowMs());
    });
    return (id === null ? undefined : intents.get(id)) ?? null;
  }

  /** The first bytes of a file that we created, in one request. */
  async #fill(upload: Upload, signal: AbortSignal): Promise<void> {
    const { id, file, content } = upload;
    const { changes, uploads, contents, intents, clock } = this.#deps;
    const sizeBytes = contents.sizeOf(content);
    const phase = (): Intent['phase'] | undefined => intents.get(id)?.phase;
    while (phase() === 'sent' || phase() === 'interrupted') {
      const now = await changes.resource(file, 'file', signal);
      if (now === null) {
        await this.#deps.mustBeGone(file, signal);
        throw new FileGone();
      }
      if (now.kind === 'file' && now.presentOnServer) {
        // Another client has filled it.
        if (now.sizeBytes !== sizeBytes) return this.#fillByVersion(upload, signal);
        return this.#acknowledgement.ofFill(id, upload.ino, file, content, reportedTime(now.lastModifiedMs));
      }
      if (phase() === 'sent') break;
      // Repeated now, the PUT would make a second version as soon as the data in transit arrives.
      await clock.sleep(STILL_ARRIVING_MS, signal);
      intents.note(id, 'arrived');
    }
    if (this.#isUnwanted(id, file)) return;
    // Another client may have filled it by now: only the history shows it.
    if (!this.#isMadeJustNow(ownerOf(this.#deps.store, file)?.remote)) return this.#fillByVersion(upload, signal);
    const body = await this.#body.of(content, { start: 0, end: sizeBytes }, signal);
    const isFirst = phase() === 'begun';
    if (!isFirst) this.#deps.store.transact((tx) => intents.rememberEarlier(tx, id));
    intents.note(id, 'send');
    let serverTimeMs: number | null;
    try {
      serverTimeMs = await uploads.putFileData(file, body, this.#mediaType(file), signal);
    } catch (error) {
      if (isFirst && hadNoEffect(error)) intents.note(id, 'no-effect');
      throw await this.#goneOr(error, file, signal);
    }
    // The next listing has the time. A later one than this belongs to bytes that another client sent since.
    const bound = serverTimeMs === null ? null : boundOf(serverTimeMs);
    this.#acknowledgement.ofFill(id, upload.ino, file, content, bound);
  }

  async #fillByVersion(upload: Upload, signal: AbortSignal): Promise<void> {
    const { store, intents } = this.#deps;
    store.transact((tx) => intents.fillByVersion(tx, upload.id));
    await this.#makeVersion(upload, signal);
  }

  async #makeVersion(upload: Upload, signal: AbortSignal): Promise<void> {
    const { id, file, content } = upload;
    const { contents, intents } = this.#deps;
    for (let attempt = 1; attempt <= VERSIONS_MAX; attempt++) {
      const known = intents.get(id)?.version ?? null;
      if (known === null && this.#isUnwanted(id, file)) return;
      if (known === null && this.#isSentAgain(upload)) {
        const sent = await this.#history(file, signal);
        const arrived = this.#firstIn(sent, upload);
        if (arrived !== null) {
          const intent = intents.get(id);
          if (intent !== undefined) this.#acknowledgement.ofVersion(intent, file, content, arrived, sent);
          return;
        }
      }
      const version = known ?? (await this.#createVersion(upload, signal));
      const sent = await this.#sendAll(upload, version, known === null, signal);
      if (sent === 'unwanted') return;
      if (sent === 'lost') {
        this.#versionIs(id, 'lost', null);
        continue;
      }
      const history = await this.#history(file, signal);
      const intent = intents.get(id);
      if (intent !== undefined) this.#acknowledgement.ofVersion(intent, file, content, version, history);
      return;
    }
    const sizeBytes = contents.sizeOf(content);
    throw new ParkedError(
      'refused',
      `${VERSIONS_MAX} versions in a row disappeared or are not ${sizeBytes} bytes long`,
    );
  }

  /** Whether these bytes were acknowledged as the file's first ones, and a listing showed others of the same seconds (`isNotArrived`). */
  #isSentAgain({ file, content }: Upload): boolean {
    const remote = ownerOf(this.#deps.store, file)?.remote;
    const record = this.#deps.contents.record(content);
    return remote?.content === null && record?.kind === 'draft' && record.resource === file && record.base === null;
  }

  /** Our version, if a file that we created has it as its first: then another client saved over it. */
  #firstIn(history: readonly RemoteVersion[], { file, content }: Upload): VersionUrl | null {
    const { store, contents } = this.#deps;
    const first = history.findLast(({ complete }) => complete);
    const bound = ownerOf(store, file)?.remote?.modified ?? null;
    const isOurs = first?.sizeBytes === contents.sizeOf(content) && mayBeTimeOf(bound, first.lastModifiedMs);
    return isOurs ? first.url : null;
  }

  async #createVersion({ id, file }: Upload, signal: AbortSignal): Promise<VersionUrl> {
    try {
      const version = await this.#deps.uploads.createVersion(file, signal);
      this.#versionIs(id, 'send', version);
      return version;
    } catch (error) {
      throw await this.#goneOr(error, file, signal);
    }
  }

  /**
   * @param isNew the version was created by this push and is empty
   * @returns 'lost' when the service does not know our version (any more), or holds something else in it
   */
  async #sendAll(
    { id, ino, file, content }: Upload,
    version: VersionUrl,
    isNew: boolean,
    signal: AbortSignal,
  ): Promise<'whole' | 'lost' | 'unwanted'> {
    const { uploads, contents, clock, log } = this.#deps;
    const sizeBytes = contents.sizeOf(content);
    let progress = isNew ? { complete: false, receivedBytes: 0 } : await uploads.versionProgress(version, signal);
    for (let sends = 0, refusals = 0, moves = 0; progress !== null && !progress.complete; ) {
      if (sends++ === SENDS_MAX) throw new TransportError('the transfer of the version ended early several times');
      const start = progress.receivedBytes;
      if (start > sizeBytes) return 'lost';
      // Only here: a complete version is acknowledged, so that the file's deletion knows what it deletes.
      if (this.#isUnwanted(id, file)) return 'unwanted';
      const body = await this.#body.of(content, { start, end: sizeBytes }, signal);
      try {
        progress = await uploads.putVersionData(version, start, body, signal);
      } catch (error) {
        if (isMoved(error) && ++moves <= MOVES_MAX) {
          progress = await uploads.versionProgress(version, signal);
          continue;
        }
        if (!(error instanceof ApiError)) throw error;
        if (error.status === 404) return 'lost';
        const isMoving = error.status === 416;
        if (!isMoving && error.status !== 403 && error.status !== 409) throw error;
        if (++refusals > REFUSALS_MAX) {
          if (isMoving) throw new PostponedError('an earlier transfer of this version has not ended yet');
          throw error;
        }
        if (isMoving) {
          log.debug(
            { ino, waitMs: REFUSAL_PAUSE_MS * refusals },
            'the version holds another number of bytes; its progress is read again',
          );
          await clock.sleep(REFUSAL_PAUSE_MS * refusals, signal);
        }
        const now = await uploads.versionProgress(version, signal);
        if (!isMoving && now !== null && !now.complete) throw error;
        progress = now;
      }
    }
    return progress !== null && progress.receivedBytes === sizeBytes ? 'whole' : 'lost';
  }

  async #history(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]> {
    try {
      return await this.#deps.uploads.versions(file, signal);
    } catch (error) {
      throw await this.#goneOr(error, file, signal);
    }
  }

  /** A 404 is the file's only if the file's own address confirms it. Otherwise each push would create the file once more. */
  async #goneOr(error: unknown, file: ResourceUrl, signal: AbortSignal): Promise<unknown> {
    if (!(error instanceof ApiError) || error.status !== 404) return error;
    if ((await this.#deps.changes.resource(file, 'file', signal)) !== null) return error;
    await this.#deps.mustBeGone(file, signal);
    return new FileGone();
  }

  #versionIs(id: IntentId, event: 'send' | 'lost', version: VersionUrl | null): void {
    const { store, intents } = this.#deps;
    store.transact((tx) => intents.happened(tx, id, event, { version }));
  }

  /** The file was deleted here while its bytes were being sent: the upload is abandoned. So is one whose intent has ended. */
  #isUnwanted(id: IntentId, file: ResourceUrl): boolean {
    const { store, intents } = this.#deps;
    if (intents.get(id) === undefined) return true;
    if (ownerOf(store, file)?.local) return false;
    store.transact((tx) => intents.abandon(tx, id));
    return true;
  }

  async #isComplete(id: IntentId, signal: AbortSignal): Promise<boolean> {
    const { intents, uploads } = this.#deps;
    const version = intents.get(id)?.version ?? null;
    return version !== null && (await uploads.versionProgress(version, signal))?.complete === true;
  }

  /** Whether we created the file so short a time ago that no other client will have seen and filled it. */
  #isMadeJustNow(remote: RemoteFacet | null | undefined): boolean {
    const createdMs = remote?.createdHereMs ?? null;
    if (createdMs === null) return false;
    const ageMs = this.#deps.clock.nowMs() - createdMs;
    return ageMs >= 0 && ageMs <= JUST_NOW_MS;
  }

  /** Whether the file holds other bytes by now, which need none of the frozen draft's. */
  #isWrittenAnew(file: ResourceUrl, frozen: ContentId): boolean {
    const { store, contents } = this.#deps;
    const now = ownerOf(store, file)?.local?.content ?? null;
    return now !== null && !layersOf(now, (id) => contents.record(id)).includes(frozen);
  }

  #mediaType(file: ResourceUrl): string {
    const node = ownerOf(this.#deps.store, file);
    if (node?.kind === 'symlink') return SYMLINK_MEDIA_TYPE;
    return mediaTypeOf(node?.remote?.name ?? '');
  }
}

export interface UploadSessionDeps extends AcknowledgementDeps {
  readonly changes: Pick<RemoteChanges, 'resource'>;
  readonly uploads: UploadService;
  readonly complete: Complete;
  /** The service does not have the file any more. */
  readonly onGone: (id: IntentId, file: ResourceUrl) => void;
  /** As `NameOutcome.mustBeGone`. */
  readonly mustBeGone: (resource: ResourceUrl, signal: AbortSignal) => Promise<void>;
  readonly onSameBytes?: OnSameBytes;
  readonly plainPutMaxBytes: number;
}

/** An open intent of kind `fill` or `version`. */
interface Upload {
  readonly id: IntentId;
  readonly ino: Inode;
  readonly action: Intent['action'];
  readonly file: ResourceUrl;
  readonly content: ContentId;
}

function uploadOf(intent: Intent | null): Upload | null {
  if (intent === null || intent.resource === null || intent.content === null) return null;
  const { id, owner, action, resource, content } = intent;
  return { id, ino: owner, action, file: resource, content };
}

function isForPerson(error: unknown): boolean {
  return pushFailureOf(error).type === 'park';
}

/** A base became a version meanwhile, by the upload of another file (a conflicted copy), and its file has moved into the cache. */
function isMoved(error: unknown): boolean {
  return error instanceof StorageError && (error.cause as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';
}

/** A 404 of the file itself, on any request of the upload. */
class FileGone extends Error {}

/** Versions created for one draft before it is parked. */
const VERSIONS_MAX = 3;
/** Transfers of one version without a break in the connection before the connection counts as bad. */
const SENDS_MAX = 8;
const REFUSALS_MAX = 5;
/** Files of a body that had moved when they were opened; fewer than `SENDS_MAX`: a missing file is not the connection's fault. */
const MOVES_MAX = 4;
const REFUSAL_PAUSE_MS = 500;
/** Age up to which a file that we created is filled by a plain PUT. */
const JUST_NOW_MS = 30_000;
/** How long a service usually takes at most to store the data of a connection that has ended. */
const STILL_ARRIVING_MS = 2_000;
