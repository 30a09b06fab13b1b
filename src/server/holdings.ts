import { Refusal } from './refusal.ts';
import type { HoldingRow } from './rows.ts';

/** Limits of one account, beside its quota for the newest versions. */
export interface HoldingLimits {
  /** Files and folders. */
  readonly entriesMax: number;
  /** Versions whose upload has not ended. */
  readonly unfinishedMax: number;
  /** Bytes of everything stored, as a multiple of the quota; at least 2, so that a file can be saved again. */
  readonly storageFactor: number;
  /** Beside that multiple, for the rows of small accounts: some thousand entries. */
  readonly rowsBytes: number;
}

export const HOLDING_LIMITS: HoldingLimits = {
  entriesMax: 1_000_000,
  unfinishedMax: 1000,
  storageFactor: 10,
  rowsBytes: 16 * 1024 * 1024,
};

/**
 * A limit that old versions may have used up: `Histories.makeRoom` drops some of them, and the change can be repeated.
 */
export class OverHoldings extends Refusal {
  readonly what: keyof HoldingRow;
  /** Bytes that did not fit. */
  readonly bytes: number;

  constructor(what: keyof HoldingRow, bytes: number) {
    super(413, what === 'entries' ? 'Too many files and folders' : 'Storage limit exceeded');
    this.what = what;
    this.bytes = bytes;
  }
}

interface Deps {
  /** The stored row; undefined for an account without entries. */
  readonly stored: (uid: string) => HoldingRow | undefined;
  readonly store: (uid: string, row: HoldingRow) => void;
  /** Takes disk space from what creations may use. @throws Refusal 507 */
  readonly claim: (bytes: number) => void;
  readonly quotaBytes: (uid: string) => number;
  /** Bytes of the newest versions: more than the quota after it was lowered. */
  readonly newestBytes: (uid: string) => number;
}

/**
 * Everything that an account stores: entries, old versions, unfinished uploads, and their rows. All of it counts, so
 * that no kind of write fills the disk. Counts change only within a change of the database, and are written once per
 * commit.
 */
export class Holdings {
  readonly #deps: Deps;
  readonly #limits: HoldingLimits;
  /** Counts after the completed actions of the running change. */
  readonly #settled = new Map<string, HoldingRow>();
  /** Counts after the action that runs now. */
  readonly #running = new Map<string, HoldingRow>();

  constructor(deps: Deps, limits: HoldingLimits) {
    this.#deps = deps;
    this.#limits = limits;
  }

  of(uid: string): HoldingRow {
    return this.#running.get(uid) ?? this.#settled.get(uid) ?? this.#deps.stored(uid) ?? NOTHING;
  }

  /** Maximum of `bytes`. */
  limitBytes(uid: string): number {
    const bytes = Math.max(this.#deps.quotaBytes(uid), this.#deps.newestBytes(uid));
    return this.#limits.storageFactor * bytes + this.#limits.rowsBytes;
  }

  /**
   * Adds what an action stores.
   * @param diskBytes of it, not on the disk yet
   * @throws OverHoldings 413 beyond a limit of the account · Refusal 507 if the disk has no room for creations
   */
  add(uid: string, delta: Partial<HoldingRow>, diskBytes = delta.bytes ?? 0): void {
    const { entries = 0, unfinished = 0, bytes = 0 } = delta;
    this.#deps.claim(diskBytes);
    const row = this.#plus(uid, delta);
    if (entries > 0 && row.entries > this.#limits.entriesMax) throw new OverHoldings('entries', bytes);
    if (unfinished > 0 && row.unfinished > this.#limits.unfinishedMax) throw new OverHoldings('unfinished', bytes);
    if (bytes > 0 && row.bytes > this.#limits.rowsBytes && this.#isOver(uid, row))
      throw new OverHoldings('bytes', bytes);
  }

  /** Records what is removed, or what is stored already. */
  note(uid: string, delta: Partial<HoldingRow>): void {
    this.#plus(uid, delta);
  }

  /** The running action succeeded. */
  settle(): void {
    for (const [uid, row] of this.#running) this.#settled.set(uid, row);
    this.#running.clear();
  }

  /** The running action failed. */
  undo(): void {
    this.#running.clear();
  }

  /** The last step of a change. */
  write(): void {
    this.settle();
    for (const [uid, row] of this.#settled) this.#deps.store(uid, row);
  }

  /** The change has ended. */
  end(): void {
    this.#running.clear();
    this.#settled.clear();
  }

  #isOver(uid: string, { bytes }: HoldingRow): boolean {
    const { storageFactor, rowsBytes } = this.#limits;
    // Most accounts are within their quota: one row less to read for each save.
    return bytes > storageFactor * this.#deps.quotaBytes(uid) + rowsBytes && bytes > this.limitBytes(uid);
  }

  #plus(uid: string, { entries = 0, unfinished = 0, bytes = 0 }: Partial<HoldingRow>): HoldingRow {
    const now = this.of(uid);
    const row = {
      entries: Math.max(0, now.entries + entries),
      unfinished: Math.max(0, now.unfinished + unfinished),
      bytes: Math.max(0, now.bytes + bytes),
    };
    this.#running.set(uid, row);
    return row;
  }
}

const NOTHING: HoldingRow = { entries: 0, unfinished: 0, bytes: 0 };
/** Estimate of the rows of an entry without its name, and of a version: up to 1.8 KB of database per file. */
const ROW_BYTES = 1024;

const LINK_BYTES = 256;

/** The bytes that an entry counts as. */
export function entryBytes(row: { readonly name: string; readonly publicLink?: string | null }): number {
  return ROW_BYTES + 2 * row.name.length + ((row.publicLink ?? null) === null ? 0 : LINK_BYTES);
}

/** The bytes that a version counts as. */
export function versionBytes(row: { readonly sizeBytes: number }): number {
  return ROW_BYTES + row.sizeBytes;
}
