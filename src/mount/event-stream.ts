import { closeSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from 'node:fs';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { EventRecord, MountEvent } from '../control/event-model.ts';

/** How many events the history keeps. */
export const EVENTS_MAX = 1_000;
/** The file is rewritten when it is longer than this: names may have 4 KiB. */
const FILE_BYTES_MAX = 8 * 1024 ** 2;

/**
 * The event stream of a mount: numbers each event, keeps the last EVENTS_MAX of them in a file of JSON lines, and passes
 * each on to its subscribers. A disk that refuses the file ends nothing: the events in memory stay.
 */
export class EventStream {
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #log: Logger;
  readonly #listeners = new Set<(record: EventRecord) => void>();
  #records: EventRecord[] = [];
  /** Published before `open`, when their numbers are not known. */
  #early: Omit<EventRecord, 'seq'>[] | null = [];
  #lastSeq = 0;
  #file: { readonly path: string; readonly fd: number; lines: number; bytes: number } | null = null;
  #unwritten: string[] = [];
  #isFlushDue = false;
  /** The last write failed, perhaps within a line. */
  #isTorn = false;

  constructor(deps: { clock: Pick<Clock, 'nowMs'>; log: Logger }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
  }

  /** Continues the history in the file `path`. Call it as the owner of the store: the file has one writer. */
  open(path: string): void {
    this.#records = readRecords(path);
    this.#lastSeq = this.#records.at(-1)?.seq ?? 0;
    this.#rewrite(path);
    const early = this.#early ?? [];
    this.#early = null;
    for (const { atMs, event } of early) this.#add(atMs, event);
  }

  publish(event: MountEvent): void {
    const atMs = this.#clock.nowMs();
    if (this.#early === null) this.#add(atMs, event);
    else this.#early.push({ atMs, event });
  }

  /** @returns ends the subscription */
  subscribe(listener: (record: EventRecord) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** The number of the newest event; 0 before the first. */
  get lastSeq(): number {
    return this.#lastSeq;
  }

  /** The events after `seq`, oldest first; all for null, and for a number that this history has not reached (its file was removed). */
  since(seq: number | null): readonly EventRecord[] {
    if (seq === null || seq > this.#lastSeq) return this.#records;
    const first = this.#records.findIndex((record) => record.seq > seq);
    return first === -1 ? [] : this.#records.slice(first);
  }

  /** Writes what is left and releases the file. Later events are only passed on. */
  close(): void {
    this.#flush();
    if (this.#file !== null) closeSync(this.#file.fd);
    this.#file = null;
  }

  #add(atMs: number, event: MountEvent): void {
    const record = { seq: ++this.#lastSeq, atMs, event };
    this.#records.push(record);
    if (this.#records.length >= 2 * EVENTS_MAX) this.#records = this.#records.slice(-EVENTS_MAX);
    if (this.#file !== null) {
      this.#unwritten.push(`${JSON.stringify(record)}\n`);
      this.#flushSoon();
    }
    for (const listener of this.#listeners) listener(record);
  }

  /** Once for all events of a turn. */
  #flushSoon(): void {
    if (this.#isFlushDue) return;
    this.#isFlushDue = true;
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#isFlushDue = false;
    const file = this.#file;
    if (file === null || this.#unwritten.length === 0) return;
    const lines = this.#unwritten;
    this.#unwritten = [];
    const text = Buffer.from(`${this.#isTorn ? '\n' : ''}${lines.join('')}`);
    try {
      const written = writeSync(file.fd, text);
      this.#isTorn = written < text.length;
      file.lines += lines.length;
      file.bytes += written;
      if (file.lines >= 2 * EVENTS_MAX || file.bytes > FILE_BYTES_MAX) {
        closeSync(file.fd);
        this.#rewrite(file.path);
      }
    } catch (err) {
      this.#isTorn = true;
      this.#log.debug({ err }, 'events not stored');
    }
  }

  /** The newest records as a new file, which is complete before it has the name; at most half of FILE_BYTES_MAX. */
  #rewrite(path: string): void {
    this.#file = null;
    const lines: string[] = [];
    let bytes = 0;
    for (const record of this.#records.slice(-EVENTS_MAX).reverse()) {
      const line = `${JSON.stringify(record)}\n`;
      bytes += Buffer.byteLength(line);
      if (bytes > FILE_BYTES_MAX / 2) break;
      lines.push(line);
    }
    try {
      writeFileSync(`${path}.new`, lines.reverse().join(''), { mode: 0o600 });
      renameSync(`${path}.new`, path);
    } catch (err) {
      this.#log.debug({ err }, 'event history not rewritten');
    }
    try {
      this.#file = { path, fd: openSync(path, 'a', 0o600), lines: lines.length, bytes };
      this.#isTorn = false;
    } catch (err) {
      this.#log.warn({ err }, 'the event history cannot be stored');
    }
  }
}

/** Unreadable lines are skipped: the process may have died within one. */
function readRecords(path: string): EventRecord[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    return [];
  }
  const records: EventRecord[] = [];
  for (const line of text.split('\n')) {
    const record = recordOf(line);
    if (record !== null && record.seq > (records.at(-1)?.seq ?? 0)) records.push(record);
  }
  return records.slice(-EVENTS_MAX);
}

function recordOf(line: string): EventRecord | null {
  try {
    const { seq, atMs, event } = JSON.parse(line) as EventRecord;
    const isRecord = Number.isSafeInteger(seq) && Number.isFinite(atMs) && typeof event.type === 'string';
    return isRecord ? { seq, atMs, event } : null;
  } catch {
    return null;
  }
}
