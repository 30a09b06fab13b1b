import { createHash } from 'node:crypto';
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import type { Status } from './protocol.ts';

/** As many as `RepeatedCalls` keeps: a client has a few dozen in flight. */
const ROWS = 1024;
const KEY_BYTES = 16;
const ROW_BYTES = 32;
const [SEQUENCE_AT, STATE_AT, STATUS_AT] = [16, 20, 24];
const [BEGUN, ENDED] = [1, 2];

/** A call of an earlier process. Null: that process died before it recorded the outcome, which may have taken effect. */
export type EarlierOutcome = Status | null;

/**
 * The latest calls that must not be carried out twice, in a file for the process that continues the mount: a client sends a call again when the
 * process died before it replied. A row is written before a call is carried out, and again before its reply. The system keeps written bytes
 * when a process dies; a power cut ends the client too, so nothing is synced.
 *
 * A row: 16 bytes of a digest of the call, its number, 1 or 2 (begun, ended), its status; each a 32-bit integer in this system's order.
 */
export class RecordedCalls {
  readonly #descriptor: number;
  readonly #earlier: Map<string, EarlierOutcome>;
  readonly #row = Buffer.alloc(ROW_BYTES);
  readonly #words = new Uint32Array(this.#row.buffer, this.#row.byteOffset, ROW_BYTES / 4);
  #sequence: number;
  #isClosed = false;

  private constructor(descriptor: number, earlier: Map<string, EarlierOutcome>, sequence: number) {
    this.#descriptor = descriptor;
    this.#earlier = earlier;
    this.#sequence = sequence;
  }

  /** @param isContinued the file has the calls of the process before this one; otherwise it is emptied */
  static open(path: string, isContinued: boolean): RecordedCalls {
    const { earlier, sequence } = isContinued ? read(path) : { earlier: new Map(), sequence: 0 };
    return new RecordedCalls(openSync(path, isContinued ? 'r+' : 'w+', 0o600), earlier, sequence);
  }

  /** The outcome of the call in an earlier process; undefined if no earlier process had it. */
  earlier(call: string): EarlierOutcome | undefined {
    return this.#earlier.size === 0 ? undefined : this.#earlier.get(keyOf(call).toString('latin1'));
  }

  /** Carries out a call. @param statusOf of its outcome; null: it continues later */
  async around<T>(call: string, run: () => Promise<T>, statusOf: (outcome: T) => Status): Promise<T> {
    const key = keyOf(call);
    const sequence = ++this.#sequence;
    this.#write(key, sequence, BEGUN, 0);
    const outcome = await run();
    this.#write(key, sequence, ENDED, statusOf(outcome));
    return outcome;
  }

  close(): void {
    this.#isClosed = true;
    closeSync(this.#descriptor);
  }

  #write(key: Buffer, sequence: number, state: number, status: number): void {
    if (this.#isClosed) return;
    key.copy(this.#row, 0, 0, KEY_BYTES);
    this.#words[SEQUENCE_AT / 4] = sequence;
    this.#words[STATE_AT / 4] = state;
    this.#words[STATUS_AT / 4] = status;
    try {
      writeSync(this.#descriptor, this.#row, 0, ROW_BYTES, (sequence % ROWS) * ROW_BYTES);
    } catch {
      // A full disk: after a death, a repeated call may fail as if another had come before it.
    }
  }
}

function keyOf(call: string): Buffer {
  return createHash('sha256').update(call, 'latin1').digest().subarray(0, KEY_BYTES);
}

function read(path: string): { readonly earlier: Map<string, EarlierOutcome>; readonly sequence: number } {
  const bytes = readFileSync(path);
  const earlier = new Map<string, EarlierOutcome>();
  let last = 0;
  for (let at = 0; at + ROW_BYTES <= bytes.byteLength; at += ROW_BYTES) {
    const words = new Uint32Array(bytes.buffer.slice(bytes.byteOffset + at, bytes.byteOffset + at + ROW_BYTES));
    const [sequence = 0, state, status] = words.subarray(SEQUENCE_AT / 4);
    if (sequence === 0) continue;
    last = Math.max(last, sequence);
    const key = bytes.toString('latin1', at, at + KEY_BYTES);
    earlier.set(key, state === ENDED ? (status as Status) : null);
  }
  return { earlier, sequence: last };
}
