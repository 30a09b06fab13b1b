import type { ContentId, Inode, IntentId, ResourceUrl } from '../base/vocabulary.ts';
import { firstPhase, phaseAfter } from './intent-phase.ts';
import { countReference, ifSound } from './node-table.ts';
import type { IntentRecord, StoreReader, StoreWriter, Transaction } from './tables.ts';

export type Intent = IntentRecord & { readonly id: IntentId };

/** What an operation is begun with; `intents` adds the rest. */
export type NewIntent = Omit<IntentRecord, 'phase' | 'startedMs' | 'sizeBytes' | 'version'> & {
  readonly sizeBytes?: number | null;
};

/** `before` or `after` is undefined where the intent is not open. */
export type OnIntentChange = (before: Intent | undefined, after: Intent | undefined) => void;

/**
 * Table `intent`, and the one index of it: by owner, in memory. An intent is written before a request is sent whose response
 * may be lost. The transaction that stores the outcome removes it. While it is open the node's remote facet may be wrong:
 * the plan does nothing about the owner but recover the intent, and listings are not valid for the owner.
 *
 * All changes of the table go through this class, so that index, table and listeners agree.
 */
export class Intents {
  readonly #store: StoreWriter;
  /** Open intents: a few dozen, and the uploads that are parked after a part was sent. */
  readonly #open = new Map<IntentId, Intent>();
  readonly #byOwner = new Map<Inode, IntentId>();
  /** Abandoned uploads, the oldest first. */
  readonly #abandoned = new Map<IntentId, Intent>();
  readonly #listeners: OnIntentChange[] = [];

  constructor(store: StoreWriter) {
    this.#store = store;
    for (const [id, record] of store.all('intent')) {
      const phase = phaseAfter(record, 'restart');
      if (phase !== 'ended') this.#set(id, { ...record, phase });
    }
  }

  /** The listener runs after each commit that opened, changed or ended an intent. It must not throw. */
  onChange(listener: OnIntentChange): void {
    this.#listeners.push(listener);
  }

  open(): Iterable<Intent> {
    return this.#open.values();
  }

  /** An open intent. */
  get(id: IntentId): Intent | undefined {
    return this.#open.get(id);
  }

  /** The open intent whose operation is for `ino`. */
  ownedBy(ino: Inode): Intent | undefined {
    const id = this.#byOwner.get(ino);
    return id === undefined ? undefined : this.#open.get(id);
  }

  /** Abandoned uploads whose versions may be among those of `resource`. */
  abandonedOf(resource: ResourceUrl): readonly Intent[] {
    if (this.#abandoned.size === 0) return [];
    return [...this.#abandoned.values()].filter((intent) => intent.resource === resource || intent.resource === null);
  }

  /**
   * Writes an intent down. Its content is kept from collection until it ends. An open intent of the same owner is replaced.
   *
   * @throws Error if that one is an upload: a push may be working on it, and would make obsolete bytes the newest version
   */
  begin(tx: Transaction, started: NewIntent, startedMs: number): IntentId {
    const before = this.ownedBy(started.owner);
    if (before !== undefined && before.content !== null)
      throw new Error(`node ${started.owner}: ${started.action} would replace the ${before.action} in flight`);
    if (before !== undefined) this.end(tx, before.id);
    const id = before?.id ?? (tx.nextId('intent') as IntentId);
    if (started.content !== null) countReference(tx, started.content, 1);
    const phase = firstPhase(started.action);
    this.#put(tx, id, { sizeBytes: null, ...started, phase, startedMs, version: null });
    return id;
  }

  /** An event of the table `intent-phase`, stored with the fields that it changes. @throws Error where the table does not have it */
  happened(tx: Transaction, id: IntentId, event: 'send' | 'lost', fields: Pick<IntentRecord, 'version'>): void {
    const record = this.#stored(tx, id);
    if (record === undefined) return;
    const phase = phaseAfter(record, event);
    if (phase !== 'ended') this.#put(tx, id, { ...record, ...fields, phase });
  }

  /** As `happened`, in memory: for phases that the next start reads alike. */
  note(id: IntentId, event: 'send' | 'no-effect' | 'arrived'): void {
    const intent = this.#open.get(id);
    if (intent === undefined) return;
    const phase = phaseAfter(intent, event);
    if (phase !== 'ended') this.#open.set(id, { ...intent, phase });
  }

  /** The operation is for another node from here on. The one place where ownership changes. */
  transfer(tx: Transaction, from: Inode, to: Inode): void {
    const intent = this.ownedBy(from);
    const record = intent === undefined ? undefined : this.#stored(tx, intent.id);
    if (intent !== undefined && record !== undefined) this.#put(tx, intent.id, { ...record, owner: to });
  }

  /** The outcome is stored by the same transaction, or there was no effect. */
  end(tx: Transaction, id: IntentId): void {
    const record = this.#stored(tx, id);
    if (record?.content != null) countReference(tx, record.content, -1);
    tx.remove('intent', id);
    tx.afterCommit(() => this.#set(id, undefined));
  }

  /** As `end`, by itself. */
  forget(id: IntentId): void {
    this.#store.transact((tx) => this.end(tx, id));
  }

  /** The operation is obsolete. An upload that may have taken effect is remembered as ours. */
  abandon(tx: Transaction, id: IntentId): void {
    const record = this.#stored(tx, id);
    if (record === undefined) return;
    const remembered = this.#asAbandoned(tx, record);
    if (remembered === null) {
      this.end(tx, id);
      return;
    }
    if (record.content !== null) countReference(tx, record.content, -1);
    this.#put(tx, id, remembered);
  }

  /** The PUT of a fill is repeated. The earlier one may still be on its way, and its version is ours, too. */
  rememberEarlier(tx: Transaction, id: IntentId): void {
    const record = this.#stored(tx, id);
    const remembered = record === undefined ? null : this.#asAbandoned(tx, record);
    if (remembered !== null) this.#put(tx, tx.nextId('intent') as IntentId, remembered);
  }

  /** The content of a fill is sent as a version of its own: another client may have filled the file, or an earlier PUT is still on its way. */
  fillByVersion(tx: Transaction, id: IntentId): void {
    const record = this.#stored(tx, id);
    if (record === undefined) return;
    this.rememberEarlier(tx, id);
    this.#put(tx, id, { ...record, action: 'new-version', phase: firstPhase('new-version') });
  }

  /** The resource does not exist any more, nor do the versions of abandoned uploads. */
  forgetAbandoned(tx: Transaction, resource: ResourceUrl): void {
    for (const intent of this.abandonedOf(resource)) if (intent.resource === resource) this.end(tx, intent.id);
  }

  /** The service has given a resource another URL. */
  readdress(tx: Transaction, was: ResourceUrl, is: ResourceUrl): void {
    if (was === is) return;
    for (const { id, parentResource } of this.#open.values()) {
      const record = parentResource === was ? this.#stored(tx, id) : undefined;
      if (record !== undefined) this.#put(tx, id, { ...record, parentResource: is });
    }
    for (const { id, resource } of this.#abandoned.values()) {
      const record = resource === was ? tx.get('intent', id) : undefined;
      // The versions have other URLs, too: the length identifies ours.
      if (record !== undefined) this.#put(tx, id, { ...record, resource: is, version: null });
    }
  }

  /** null: it certainly had no effect, or nothing identifies its version. */
  #asAbandoned(tx: Transaction, record: IntentRecord): IntentRecord | null {
    const phase = phaseAfter(record, 'abandon');
    if (phase === 'ended') return null;
    const sizeBytes = record.content === null ? null : lengthOf(tx, record.content);
    if (sizeBytes === null && record.version === null) return null;
    return { ...record, phase, content: null, sizeBytes };
  }

  /** The open intent as the transaction sees it. */
  #stored(tx: StoreReader, id: IntentId): IntentRecord | undefined {
    const record = tx.get('intent', id);
    if (record === undefined || record.phase === 'abandoned') return undefined;
    return { ...record, phase: this.#open.get(id)?.phase ?? record.phase };
  }

  #put(tx: Transaction, id: IntentId, record: IntentRecord): void {
    tx.put('intent', id, record);
    tx.afterCommit(() => this.#set(id, record));
    const [oldest] = this.#abandoned.keys();
    const isFull = record.phase === 'abandoned' && this.#abandoned.size >= ABANDONED_MAX;
    if (isFull && oldest !== undefined && oldest !== id) this.end(tx, oldest);
  }

  #set(id: IntentId, record: IntentRecord | undefined): void {
    const before = this.#open.get(id);
    if (before !== undefined) {
      this.#open.delete(id);
      if (this.#byOwner.get(before.owner) === id) this.#byOwner.delete(before.owner);
    }
    this.#abandoned.delete(id);
    const intent = record === undefined ? undefined : { ...record, id };
    const after = intent?.phase === 'abandoned' ? undefined : intent;
    if (after !== undefined) {
      this.#open.set(id, after);
      this.#byOwner.set(after.owner, id);
    } else if (intent !== undefined) this.#abandoned.set(id, intent);
    if (before === undefined && after === undefined) return;
    for (const listener of this.#listeners) listener(before, after);
  }
}

/** Whether the service may hold bytes of this upload, or a name that it asked for. */
export function mayHaveActed({ phase }: Pick<IntentRecord, 'phase'>): boolean {
  return phase !== 'begun';
}

function lengthOf(tx: StoreReader, content: ContentId): number | null {
  return ifSound(() => tx.get('content', content)?.sizeBytes) ?? null;
}

/** Abandoned uploads that are remembered. */
const ABANDONED_MAX = 1_000;
