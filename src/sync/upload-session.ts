import { ApiError, StorageError, TransportError } from '../base/errors.ts';
import type { RemoteVersion } from '../base/resources.ts';
import type { ContentId, Inode, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import { layersOf } from '../bytes/content-layers.ts';
import { discardedVersions, writeDiscardedVersions } from '../store/discarded-versions.ts';
import { ifSound, writeNode } from '../store/node-table.ts';
import { boundOf, reportedTime, type ServiceTime } from '../store/service-time.ts';
import type { RemoteFacet, UploadRecord } from '../store/tables.ts';
import { Acknowledgement, type AcknowledgementDeps } from './acknowledgement.ts';
import { isOnlyDiscardedSince, isTakenOverBy, knownOf } from './conflict.ts';
import { type Complete, DraftBody } from './draft-body.ts';
import { failureOf, hadNoEffect, ParkedError, PostponedError } from './failure.ts';
import { mediaTypeOf, SYMLINK_MEDIA_TYPE } from './media-type.ts';
import { ownerOf } from './outcome.ts';
import type { RemoteChanges, UploadService } from './remote-changes.ts';
import type { OnSameBytes } from './unchanged-draft.ts';

/**
 * One frozen draft → one version.
 *
 * The first bytes of a file that we made a moment ago, up to 1 MiB: one plain PUT. It cannot be resumed and its answer does not name the
 * version, so nobody learns of bytes of another client that it went over. Everything else: POST version, PUT version data, GET history.
 * Which of both, which draft, which version is written down before the request that needs it; so an upload goes on from what the service
 * holds, in this process or the next. The service is believed over our memory; and a version whose URL did not come in an answer to us is never written to.
 *
 * | interruption | what is done |
 * | --- | --- |
 * | before the POST of the version was answered (lost either way) | another version is made; the first stays empty and unseen |
 * | connection cut in the PUT, SIGKILL, machine asleep | our version is asked what it holds, the rest is sent from there |
 * | the answer of the PUT lost | the same: the version says that it is complete |
 * | an honest *incomplete* | the rest is sent from the number in the answer |
 * | 416 | the old PUT is still being served: our version is asked again after a pause |
 * | 403 or 409 for a version that is complete already | our version is asked; complete is complete |
 * | 404 of the version | another version is made |
 * | 404 of the file, which says so itself too | deleted elsewhere: what was changed here is made anew as a file (`onGone`) |
 * | 404 of what belongs to a file that is there | parked |
 * | complete, but of another length | never believed: another version is made; parked when it happens again |
 * | 401, 413, 5xx, 429 | the sync loop waits, parks or asks to sign in; the session stays and is gone on with |
 * | the plain PUT cut, or its answer lost | the file is asked: our length present is ours; where there is none it is sent again |
 * | the plain PUT did not come through at once, or the file holds another length | a version of its own is made: another client may be there |
 * | the plain PUT stored after that all the same | its version is ours, too |
 * | SIGKILL in the plain PUT | the same, and asked twice: what was on its way may still be being put on a disk |
 * | a file of the draft's layers was moved meanwhile | our version is asked, the rest is sent from where it lies now |
 * | parked (refused, too large, damaged, what it lies over is gone), and the file holds other bytes by now | it is given up, those are the next version; a plain PUT that was not heard of and is found below them is ours |
 * | the plain PUT of other bytes was not heard of | a version of its own is made: the length of the file says nothing |
 * | the draft changed meanwhile | the frozen one is finished; what came after is the next version |
 * | the version given up by a person (`cfs discard`) or a deletion, and complete unheard | it becomes no copy when a later one is made, and goes with the file when that is deleted, in this process |
 * | file deleted here meanwhile | the transfer of a version ends once the deletion has settled (`plan`), a plain PUT at its end; the file's deletion takes the half version along |
 * | the history lost (or crash before it) | the version says that it is complete, the history is asked again |
 * | power cut after anything was sent | as after SIGKILL: the draft was on the disk before its first byte was sent (`DraftBody`) |
 *
 * Each row has its test in test/sync/upload-session.test.ts, the last one in test/sync/upload-session-syncs.test.ts, those of
 * saves that fall between two steps in test/sync/interleavings.test.ts.
 */
export class UploadSession {
  readonly #deps: UploadSessionDeps;
  readonly #body: DraftBody;
  readonly #acknowledgement: Acknowledgement;
  /**
   * Files whose plain PUT may have taken effect unheard, and of which content. After a restart every one that was begun. By resource: the
   * node that began the upload may have handed it over.
   */
  readonly #unheard = new Map<ResourceUrl, ContentId>();
  /** Of these, those that an earlier process began: nobody waited since then. */
  readonly #leftBehind = new Set<ResourceUrl>();
  /** Of those that were given up all the same, as something that was saved since is to go: how long they are. */
  readonly #givenUp = new Map<ResourceUrl, number>();
  /** Versions of ours that were given up by a person or a deletion, and may be complete for all that; the oldest first. Stored. */
  readonly #discarded: Set<VersionUrl>;
  /** Versions made in this process to which nothing was sent yet. */
  readonly #untouched = new Set<VersionUrl>();

  constructor(deps: UploadSessionDeps) {
    this.#deps = deps;
    this.#discarded = new Set(discardedVersions(deps.store));
    this.#body = new DraftBody(deps);
    this.#acknowledgement = new Acknowledgement(deps);
  }

  /**
   * Makes what the node holds now (or what an earlier attempt froze) the newest version of its file. Resolves when the
   * service has acknowledged it and that is recorded, or when there is nothing to push any more.
   */
  async push(ino: Inode, signal: AbortSignal): Promise<void> {
    const record = this.#deps.intents.of(ino) ?? this.#freeze(ino);
    if (record === null || record.resource === null || record.content === null) return;
    const { contents } = this.#deps;
    // The draft, and the cached blocks of what lay under it when this began, stay while they are sent, however long that takes: the body
    // names places in their files, and where a block went it would send zeros.
    const lease = contents.lease(record.content, 'copying');
    try {
      if (record.action === 'create-file' && record.version === null)
        await this.#fill(ino, record.resource, record.content, signal);
      else await this.#makeVersion(ino, record.resource, record.content, signal);
    } catch (error) {
      if (error instanceof FileGone) this.#deps.onGone(ino, record.resource);
      else if (!isForPerson(error) || !this.#isWrittenAnew(record.resource, record.content)) throw error;
      // What is in the history by now is gone on with: forgotten, it would be taken for somebody else's.
      else if (await this.#isComplete(ino, signal)) throw error;
      // Too large, refused, damaged, or what it lies over is gone: it would keep what was saved since from ever being sent.
      else this.#giveUp(ino, record);
    } finally {
      lease.release();
    }
  }

  /** Whether something may have been sent that a later try goes on with, or has to ask for. */
  wasSent({ action, resource, content, version }: UploadRecord): boolean {
    if (version !== null) return true;
    return action === 'create-file' && resource !== null && this.#unheard.get(resource) === content;
  }

  /** A person or a deletion gives up this upload. If its version is complete without our knowledge, it is still ours. */
  discarded({ version }: UploadRecord): void {
    if (version === null) return;
    this.#discarded.add(version);
    for (const oldest of this.#discarded) {
      if (this.#discarded.size <= DISCARDED_MAX) break;
      this.#discarded.delete(oldest);
    }
    try {
      this.#deps.store.transact((tx) => writeDiscardedVersions(tx, [...this.#discarded]));
    } catch (error) {
      // On a full disk this process alone knows it.
      if (!(error instanceof StorageError)) throw error;
    }
  }

  /** Of a file that is not as `remote` tells: whether all that came since was given up by a person. Asked for only where something was. */
  async isOnlyDiscarded(remote: RemoteFacet, signal: AbortSignal): Promise<boolean> {
    if (this.#discarded.size === 0) return false;
    const { store, uploads } = this.#deps;
    try {
      const history = await uploads.versions(remote.resource, signal);
      return isOnlyDiscardedSince(history, knownOf(store, remote), this.#discarded);
    } catch (error) {
      // It went meanwhile, or is none that has a history.
      if (error instanceof ApiError && error.status === 404) return false;
      throw error;
    }
  }

  /** From here on the draft does not change any more; what is written later makes a second one over it. */
  #freeze(ino: Inode): UploadRecord | null {
    const { store, contents, intents, clock, plainPutMaxBytes } = this.#deps;
    return store.transact((tx) => {
      let node = tx.get('node', ino);
      if (!node?.local || !node.remote) return null;
      const { remote } = node;
      if (node.local.content === null) {
        // It shows whatever the service has: there is nothing to send.
        if (remote.sizeBytes !== null) return null;
        // Made here and never written to: no bytes are bytes, too.
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
        // and what is here of it stays here.
        const was = content;
        const draft = contents.createDraft(tx, { content: was, sizeBytes: bytes.sizeBytes });
        tx.afterCommit(() => this.#deps.onSameBytes?.(ino, was, draft));
        content = draft;
        const after = { ...node, local: { ...node.local, content } };
        writeNode(tx, node, after, clock.nowMs());
        node = after;
      }
      if (contents.isBeingWritten(content)) throw new PostponedError('it is being written to at this moment');
      if (!tx.get('content', content)?.sealed) contents.seal(tx, content);
      const frozen = tx.get('content', content);
      if (frozen !== undefined && node.local !== null && frozen.sizeBytes !== node.local.sizeBytes) {
        // Pushed while it is open: sealed with what was written since the last flush.
        const local = { ...node.local, sizeBytes: frozen.sizeBytes };
        writeNode(tx, node, { ...node, local }, clock.nowMs());
      }
      const isFirst = remote.sizeBytes === null && this.#isMadeJustNow(remote);
      // A draft over a base becomes a version whose URL is known: only then its base can go. So does one that follows another of which
      // nothing was heard: asked for its length, the file could speak of that one.
      const isAlone = (frozen?.base ?? null) === null && (this.#unheard.get(remote.resource) ?? content) === content;
      const isPlain = isFirst && isAlone && (frozen?.sizeBytes ?? 0) <= plainPutMaxBytes;
      const record: UploadRecord = {
        action: isPlain ? 'create-file' : 'new-version',
        startedMs: clock.nowMs(),
        parentResource: null,
        name: null,
        resource: remote.resource,
        content,
        version: null,
        ...(isTakenOverBy(tx, remote, content) && { isTakeOver: true as const }),
      };
      intents.put(tx, ino, record);
      return record;
    });
  }

  /** The first bytes of a file that we made, in one request. */
  async #fill(ino: Inode, file: ResourceUrl, content: ContentId, signal: AbortSignal): Promise<void> {
    const { changes, uploads, contents, clock } = this.#deps;
    const sizeBytes = contents.sizeOf(content);
    while (this.#unheard.get(file) === content) {
      const now = await changes.resource(file, 'file', signal);
      if (now === null) {
        await this.#deps.mustBeGone(file, signal);
        throw new FileGone();
      }
      if (now.kind === 'file' && now.presentOnServer) {
        // Somebody else put something into it.
        if (now.sizeBytes !== sizeBytes) return this.#makeVersion(ino, file, content, signal);
        this.#acknowledgeFill(ino, file, content, reportedTime(now.lastModifiedMs));
        return;
      }
      if (!this.#leftBehind.has(file)) break;
      // Sent again now, bytes that a dead process had sent would stand twice in the history as soon as they arrive.
      await clock.sleep(STILL_ARRIVING_MS, signal);
      this.#leftBehind.delete(file);
    }
    if (this.#isUnwanted(ino, file)) return;
    // Somebody else may have put something into it by now: only the history tells.
    if (!this.#isMadeJustNow(ownerOf(this.#deps.store, file)?.remote))
      return this.#makeVersion(ino, file, content, signal);
    const body = await this.#body.of(content, { start: 0, end: sizeBytes }, signal);
    // From here on the answer may be lost; a restart does not know whether this line was reached, and asks.
    this.#unheard.set(file, content);
    let serverTimeMs: number | null;
    try {
      serverTimeMs = await uploads.putFileData(file, body, this.#mediaType(file), signal);
    } catch (error) {
      if (hadNoEffect(error)) this.#unheard.delete(file);
      throw await this.#goneOr(error, file, signal);
    }
    // The next listing tells the time. A later one than this is of bytes that somebody else sent since.
    this.#acknowledgeFill(ino, file, content, serverTimeMs === null ? null : boundOf(serverTimeMs));
  }

  async #makeVersion(ino: Inode, file: ResourceUrl, content: ContentId, signal: AbortSignal): Promise<void> {
    const sizeBytes = this.#deps.contents.sizeOf(content);
    for (let attempt = 1; attempt <= VERSIONS_MAX; attempt++) {
      const known = this.#deps.intents.of(ino)?.version ?? null;
      if (known === null && this.#isUnwanted(ino, file)) return;
      const version = known ?? (await this.#createVersion(ino, file, signal));
      const sent = await this.#sendAll(ino, file, version, content, sizeBytes, signal);
      if (sent === 'unwanted') return;
      if (sent === 'lost') {
        this.#setVersion(ino, null);
        continue;
      }
      const history = await this.#history(file, signal);
      const others = this.#withoutFill(ino, file, content, version, history);
      this.#unheard.delete(file);
      this.#givenUp.delete(file);
      this.#acknowledgement.ofVersion(ino, file, content, version, others, this.#discarded);
      return;
    }
    throw new ParkedError('refused', `${VERSIONS_MAX} versions in a row disappeared or came out with another length`);
  }

  /**
   * Without what a plain PUT of the same bytes made, or of those before them, of which nothing was heard: a service may take for long to store
   * what it refused with a 504, and it would be taken for somebody else's. As always after such a PUT, its length is all there is to tell it by.
   */
  #withoutFill(
    ino: Inode,
    file: ResourceUrl,
    content: ContentId,
    version: VersionUrl,
    history: readonly RemoteVersion[],
  ): readonly RemoteVersion[] {
    const { intents, contents } = this.#deps;
    const isUnheard = intents.of(ino)?.action === 'create-file' && this.#unheard.get(file) === content;
    const sizeBytes = isUnheard ? contents.sizeOf(content) : this.#givenUp.get(file);
    if (sizeBytes === undefined) return history;
    const fill = history.find((each) => each.url !== version && each.complete && each.sizeBytes === sizeBytes);
    return history.filter((each) => each !== fill);
  }

  async #createVersion(ino: Inode, file: ResourceUrl, signal: AbortSignal): Promise<VersionUrl> {
    try {
      const version = await this.#deps.uploads.createVersion(file, signal);
      this.#setVersion(ino, version);
      return version;
    } catch (error) {
      throw await this.#goneOr(error, file, signal);
    }
  }

  /** @returns 'lost' when the service does not know our version (any more), or holds something else in it */
  async #sendAll(
    ino: Inode,
    file: ResourceUrl,
    version: VersionUrl,
    content: ContentId,
    sizeBytes: number,
    signal: AbortSignal,
  ): Promise<'whole' | 'lost' | 'unwanted'> {
    const { uploads, clock, log } = this.#deps;
    // What was made just now holds nothing; every other version is asked.
    let progress = this.#untouched.delete(version)
      ? { complete: false, receivedBytes: 0 }
      : await uploads.versionProgress(version, signal);
    for (let sends = 0, refusals = 0, moves = 0; progress !== null && !progress.complete; ) {
      if (sends++ === SENDS_MAX) throw new TransportError('the version keeps ending early');
      const start = progress.receivedBytes;
      if (start > sizeBytes) return 'lost';
      // Only here: what is complete already is acknowledged, so that the file's deletion knows what it deletes.
      if (this.#isUnwanted(ino, file)) return 'unwanted';
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
            'version holds another number of bytes, asking again',
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

  /** A 404 is the file's only if the file says so too: whoever takes another one for it makes the file twice, without an end. */
  async #goneOr(error: unknown, file: ResourceUrl, signal: AbortSignal): Promise<unknown> {
    if (!(error instanceof ApiError) || error.status !== 404) return error;
    if ((await this.#deps.changes.resource(file, 'file', signal)) !== null) return error;
    await this.#deps.mustBeGone(file, signal);
    return new FileGone();
  }

  #acknowledgeFill(ino: Inode, file: ResourceUrl, content: ContentId, modified: ServiceTime | null): void {
    this.#unheard.delete(file);
    this.#acknowledgement.ofFill(ino, file, content, modified);
  }

  #setVersion(ino: Inode, version: VersionUrl | null): void {
    const { store, intents } = this.#deps;
    store.transact((tx) => {
      const record = intents.of(ino);
      if (record !== undefined) intents.put(tx, ino, { ...record, version });
    });
    if (version !== null) this.#untouched.add(version);
  }

  /** The file was deleted here while its bytes were being sent: nobody waits for them any more. */
  #isUnwanted(ino: Inode, file: ResourceUrl): boolean {
    const { store, intents } = this.#deps;
    if (ownerOf(store, file)?.local) return false;
    intents.forget(ino);
    return true;
  }

  /** What was saved since goes instead. */
  #giveUp(ino: Inode, { action, resource, content }: UploadRecord): void {
    const { contents, intents } = this.#deps;
    if (action === 'create-file' && resource !== null && content !== null && this.#unheard.get(resource) === content) {
      const sizeBytes = ifSound(() => contents.sizeOf(content));
      if (sizeBytes !== undefined) this.#givenUp.set(resource, sizeBytes);
    }
    intents.forget(ino);
  }

  async #isComplete(ino: Inode, signal: AbortSignal): Promise<boolean> {
    const { intents, uploads } = this.#deps;
    const version = intents.of(ino)?.version ?? null;
    return version !== null && (await uploads.versionProgress(version, signal))?.complete === true;
  }

  /** Whether the file was made by us so short a time ago that nobody else will have seen it, and filled it. */
  #isMadeJustNow(remote: RemoteFacet | null | undefined): boolean {
    const createdMs = remote?.createdHereMs ?? null;
    if (createdMs === null) return false;
    const ageMs = this.#deps.clock.nowMs() - createdMs;
    return ageMs >= 0 && ageMs <= JUST_NOW_MS;
  }

  /** Whether the file holds other bytes by now, which need nothing of what was frozen. */
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

  /** The uploads of table `upload` were begun by an earlier process: what it did with them is not known. */
  resume(inos: readonly Inode[]): void {
    for (const ino of inos) {
      const { resource = null, content = null } = this.#deps.intents.of(ino) ?? {};
      if (resource === null || content === null) continue;
      this.#unheard.set(resource, content);
      this.#leftBehind.add(resource);
    }
  }
}

export interface UploadSessionDeps extends AcknowledgementDeps {
  readonly changes: Pick<RemoteChanges, 'resource'>;
  readonly uploads: UploadService;
  readonly complete: Complete;
  /** The service does not have the file any more. */
  readonly onGone: (ino: Inode, file: ResourceUrl) => void;
  /** As `NameOutcome.mustBeGone`. */
  readonly mustBeGone: (resource: ResourceUrl, signal: AbortSignal) => Promise<void>;
  readonly onSameBytes?: OnSameBytes;
  readonly plainPutMaxBytes: number;
}

function isForPerson(error: unknown): boolean {
  return failureOf(error).type === 'park';
}

/** What it lies over became a version meanwhile, as another file's (a conflicted copy's) upload, and its file is in the cache now. */
function isMoved(error: unknown): boolean {
  return error instanceof StorageError && (error.cause as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';
}

/** The file's 404, on whichever request it came. */
class FileGone extends Error {}

/** Versions begun for one draft before it is parked. */
const VERSIONS_MAX = 3;
/** Transfers of one version without a break in the connection before the line is taken for bad. */
const SENDS_MAX = 8;
const REFUSALS_MAX = 5;
/** Files of a body that were somewhere else when they were opened; fewer than `SENDS_MAX`: one that is nowhere is not the line's fault. */
const MOVES_MAX = 4;
const REFUSAL_PAUSE_MS = 500;
const DISCARDED_MAX = 1_000;
/** A file that we made is filled by a plain PUT for so long. */
const JUST_NOW_MS = 30_000;
/** How long a service takes, at most and mostly, to put on its disk what came over a line that has ended. */
const STILL_ARRIVING_MS = 2_000;
