import type { ContentId, Inode } from '../base/vocabulary.ts';
import type { DirtyIndex } from './dirty-index.ts';
import { IntentRecovery } from './intent-recovery.ts';
import type { OnInTheWay } from './name-collisions.ts';
import { NameOutcome } from './name-outcome.ts';
import { NamePush } from './name-push.ts';
import type { Action } from './plan.ts';
import type { SyncDeps } from './sync-deps.ts';
import { Takeover } from './takeover.ts';
import { settleUnchanged } from './unchanged-draft.ts';
import { UploadSession } from './upload-session.ts';
import { UrlChange } from './url-change.ts';

/** Carries out one action of the plan: names by `NamePush` and `IntentRecovery`, bytes by `UploadSession`. */
export class Pusher {
  readonly #deps: PusherDeps;
  readonly #names: NamePush;
  readonly #intentRecovery: IntentRecovery;
  readonly #session: UploadSession;
  readonly #takeover: Takeover;

  constructor(deps: PusherDeps) {
    this.#deps = deps;
    const { options, names } = deps;
    const { deletion, plainPutMaxBytes, host } = options;
    const outcome = new NameOutcome({ ...deps, deletion });
    const urlChange = new UrlChange({ ...deps, outcome, naming: names });
    const onGone = outcome.gone.bind(outcome);
    const mustBeGone = outcome.mustBeGone.bind(outcome);
    const session = new UploadSession({ ...deps, onGone, mustBeGone, plainPutMaxBytes, host });
    const isOnlyAbandoned = session.isOnlyAbandoned.bind(session);
    this.#session = session;
    this.#names = new NamePush({ ...deps, outcome, urlChange, naming: names, isOnlyAbandoned, deletion, host });
    this.#takeover = new Takeover({ ...deps, outcome, naming: names, deletion });
    this.#intentRecovery = new IntentRecovery({ ...deps, outcome, urlChange, takeover: this.#takeover, naming: names });
  }

  /**
   * @returns 'split' if a folder contains entries that must not be deleted; 'unchanged' if a draft has no new bytes, or is being written
   *   again
   * @throws what `RemoteChanges` and `UploadService` throw, ParkedError, PostponedError; the intent of a push that began stays open
   */
  async push(action: Action, signal: AbortSignal): Promise<'done' | 'split' | 'unchanged'> {
    const { ino } = action;
    switch (action.type) {
      case 'recover': {
        const intent = this.#deps.intents.ownedBy(ino);
        if (intent === undefined) break;
        if (intent.content !== null) await this.#session.push(ino, signal);
        else await this.#intentRecovery.findOut(ino, intent, signal);
        break;
      }
      case 'create-folder':
        await this.#names.createFolder(action, signal);
        break;
      case 'create-file': {
        if (await this.#takeover.take(action, signal)) break;
        const isMade = await this.#names.createFile(action, signal);
        this.#deps.index.refresh(ino);
        const isWanted = this.#deps.store.get('node', ino)?.local !== null && !this.#deps.isBeingWritten(ino);
        // Sent right after the creation: until then the file is an empty stub for other clients.
        if (isMade && isWanted) await this.#session.push(ino, signal);
        break;
      }
      case 'upload':
        if (await settleUnchanged(this.#deps, ino, signal)) return 'unchanged';
        // A program opened the file during the comparison, or renamed it over a file with an intent, which it owns now.
        if (this.#deps.isBeingWritten(ino) || this.#deps.intents.ownedBy(ino) !== undefined) return 'unchanged';
        await this.#session.push(ino, signal);
        break;
      case 'relocate':
        await this.#names.relocate(action, signal);
        break;
      case 'delete':
        return this.#names.remove(action, signal);
      default:
        action satisfies never;
    }
    return 'done';
  }
}

export interface PusherDeps extends SyncDeps {
  readonly index: DirtyIndex;
  /** Whether a push of the node is running or about to be recorded. */
  readonly isBusy: (ino: Inode) => boolean;
  /** The push made another node dirty. */
  readonly onDirty: (ino: Inode) => void;
  readonly onInTheWay: OnInTheWay;
  /** The file was deleted remotely, and stays here unchanged while it is open. */
  readonly onKeptOpen: (ino: Inode) => void;
  /** A draft became a version on the service, and the response did not name the version. */
  readonly onNameless: (content: ContentId) => void;
}
