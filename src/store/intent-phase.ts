/** `fill`: the first bytes of a file that we created, in one request that does not return the version. */
/**
 * `copy-file` and `restore`: a save takes over a history (`sync/takeover`), by a copy of the file or by its way back from the trash.
 */
export type IntentAction =
  | 'create-folder'
  | 'create-file'
  | 'fill'
  | 'new-version'
  | 'relocate'
  | 'trash'
  | 'copy-file'
  | 'restore';

/**
 * Life of an intent: the phase and the events that change it. `docs/architecture.md` draws this table; a test compares both.
 *
 * - `begun`: nothing was sent that could have taken effect.
 * - `sent`: a request was sent, or data of the version, and its outcome is not known.
 * - `interrupted`: as `sent`, by an earlier process. Data of a plain PUT may still be in transit.
 * - `abandoned`: the upload is obsolete, but its version may exist or appear later. It is ours: conflict detection and deletion must not
 *   take it for another client's. Not open: the node's next push does not wait for it.
 */
export type IntentPhase = 'begun' | 'sent' | 'interrupted' | 'abandoned';

export type IntentEvent =
  /** A request is about to be sent whose effect may stay unknown; uploads by version: the version's URL is known. */
  | 'send'
  /** The first request of this kind certainly had no effect. */
  | 'no-effect'
  /** The service does not have our version, or has another length of it. */
  | 'lost'
  /** A new process has read the intent. Never stored: the next start repeats it. */
  | 'restart'
  /** The pause for data in transit is over. */
  | 'arrived'
  /** The outcome is known and stored. */
  | 'acknowledge'
  /** A person, a deletion or newer bytes make the upload obsolete. */
  | 'abandon';

/** How an operation reaches the service. A `fill` sends all bytes in one PUT; a `version` resumes by the URL of the version. */
export type IntentKind = 'name' | 'fill' | 'version';

type Row = Partial<Record<IntentEvent, IntentPhase | 'ended'>>;

/** Missing entries are impossible: `phaseAfter` throws. */
export const INTENT_TABLE: { readonly [K in IntentKind]: Partial<Record<IntentPhase, Row>> } = {
  name: {
    sent: { restart: 'sent', acknowledge: 'ended', 'no-effect': 'ended', abandon: 'ended' },
  },
  fill: {
    begun: { send: 'sent', restart: 'interrupted', abandon: 'ended', acknowledge: 'ended' },
    sent: { send: 'sent', 'no-effect': 'begun', restart: 'interrupted', abandon: 'abandoned', acknowledge: 'ended' },
    interrupted: { arrived: 'sent', restart: 'interrupted', abandon: 'abandoned', acknowledge: 'ended' },
    abandoned: { restart: 'abandoned', acknowledge: 'ended' },
  },
  version: {
    begun: { send: 'sent', restart: 'begun', abandon: 'ended', acknowledge: 'ended' },
    sent: { lost: 'begun', restart: 'sent', abandon: 'abandoned', acknowledge: 'ended' },
    abandoned: { restart: 'abandoned', acknowledge: 'ended' },
  },
};

export function intentKindOf(action: IntentAction): IntentKind {
  if (action === 'fill') return 'fill';
  return action === 'new-version' ? 'version' : 'name';
}

/** The phase of a new intent. */
export function firstPhase(action: IntentAction): IntentPhase {
  return intentKindOf(action) === 'name' ? 'sent' : 'begun';
}

/** @throws Error for an event that is impossible in this phase */
export function phaseAfter(
  { action, phase }: { readonly action: IntentAction; readonly phase: IntentPhase },
  event: IntentEvent,
) {
  const after = INTENT_TABLE[intentKindOf(action)][phase]?.[event];
  if (after === undefined) throw new Error(`${action} ${phase}: ${event} is impossible`);
  return after;
}
