import { BLOCK_BYTES, type Extent } from '../../src/base/vocabulary.ts';
import { ReadAhead } from '../../src/content/read-ahead.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

export interface Line {
  readonly connections: number;
  /** Until the first byte of an answer. */
  readonly latencyMs: number;
  /** Of one connection. */
  readonly bytesPerMs: number;
}

interface Range {
  readonly start: number;
  end: number;
  readonly isAhead: boolean;
  landedTo: number;
}

/**
 * A program that reads a file from its start to its end through the kernel's own read-ahead, over a line whose answers only take
 * their time: no clock, no bytes. What reading ahead costs by itself, and nothing else.
 */
export class LineModel {
  readonly #line: Line;
  readonly #sizeBytes: number;
  readonly #readAhead = new ReadAhead();
  readonly #events: { readonly atMs: number; readonly act: () => void }[] = [];
  readonly #ranges = new Map<number, Range>();
  readonly #queue: Range[] = [];
  readonly #readers: { readonly extent: Extent; readonly goOn: () => void }[] = [];
  #busy = 0;
  #nowMs = 0;
  /** Bytes per millisecond of one request, the way to the service included; 0: none has told yet. */
  #rate = 0;

  constructor(line: Line, sizeBytes: number) {
    this.#line = line;
    this.#sizeBytes = sizeBytes;
  }

  /** @returns how long it takes, milliseconds, and how many requests */
  readAll(): { readonly ms: number; readonly requests: number } {
    const windows = kernelWindows(this.#sizeBytes);
    let doneMs: number | null = null;
    const readFrom = (index: number): void => {
      const extent = windows[index];
      if (extent === undefined) doneMs = this.#nowMs;
      else this.#read(extent, () => this.#at(0, () => readFrom(index + 1)));
      // The kernel asks for the next window when the reader comes to this one.
      const next = windows[index + 1];
      if (next !== undefined) this.#read(next, () => {});
    };
    readFrom(0);
    while (doneMs === null) {
      const first = this.#events.reduce((a, b) => (b.atMs < a.atMs ? b : a));
      this.#events.splice(this.#events.indexOf(first), 1);
      this.#nowMs = first.atMs;
      first.act();
    }
    return { ms: doneMs, requests: new Set(this.#ranges.values()).size };
  }

  #at(inMs: number, act: () => void): void {
    this.#events.push({ atMs: this.#nowMs + inMs, act });
  }

  #read(extent: Extent, goOn: () => void): void {
    const isMissing = !this.#isHere(extent);
    if (isMissing) this.#ask(extent, false);
    const paceBytes = this.#rate === 0 ? null : Math.max(MIB, Math.min(32 * MIB, this.#rate * 1000));
    const ahead = this.#readAhead.afterRead(extent, this.#sizeBytes, isMissing, paceBytes) ?? [];
    for (const each of ahead) this.#ask(each, true);
    if (isMissing) this.#readers.push({ extent, goOn });
    else goOn();
  }

  /** One request for each run of whole blocks that nobody asked for yet. */
  #ask({ start, end }: Extent, isAhead: boolean): void {
    let run: Range | null = null;
    for (let at = start - (start % BLOCK_BYTES); at < end; at += BLOCK_BYTES) {
      if (this.#ranges.has(at)) {
        run = null;
        continue;
      }
      if (run === null) {
        run = { start: at, end: at, isAhead, landedTo: at };
        this.#queue.push(run);
      }
      run.end = Math.min(at + BLOCK_BYTES, this.#sizeBytes);
      this.#ranges.set(at, run);
    }
    this.#startNext();
  }

  #startNext(): void {
    while (this.#busy < this.#line.connections && this.#queue.length > 0) {
      const wanted = this.#queue.findIndex(({ isAhead }) => !isAhead);
      const [range] = this.#queue.splice(Math.max(0, wanted), 1) as [Range];
      this.#busy++;
      const { latencyMs, bytesPerMs } = this.#line;
      const bytes = range.end - range.start;
      for (let landed = 0; landed < bytes; ) {
        landed = Math.min(bytes, landed + 2 * BLOCK_BYTES);
        const to = range.start + landed;
        this.#at(latencyMs + landed / bytesPerMs, () => this.#landed(range, to));
      }
      this.#at(latencyMs + bytes / bytesPerMs, () => {
        this.#busy--;
        if (bytes >= MIB / 2) this.#rate = Math.max(this.#rate, bytes / (latencyMs + bytes / bytesPerMs));
        this.#startNext();
      });
    }
  }

  #landed(range: Range, to: number): void {
    range.landedTo = to;
    const ready = this.#readers.filter(({ extent }) => this.#isHere(extent));
    for (const reader of ready) this.#readers.splice(this.#readers.indexOf(reader), 1);
    for (const { goOn } of ready) goOn();
  }

  #isHere({ start, end }: Extent): boolean {
    for (let at = start; at < end; at += BLOCK_BYTES)
      if ((this.#ranges.get(at)?.landedTo ?? 0) < Math.min(at + BLOCK_BYTES, end)) return false;
    return true;
  }
}

/** What the kernel reads ahead by itself: windows that double up to 1 MiB. */
function kernelWindows(sizeBytes: number): readonly Extent[] {
  const windows: Extent[] = [];
  for (let start = 0, bytes = 256 * KIB; start < sizeBytes; bytes = Math.min(2 * bytes, MIB)) {
    const end = Math.min(start + bytes, sizeBytes);
    windows.push({ start, end });
    start = end;
  }
  return windows;
}
