import { connect, type Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { unbracketed } from '../base/proxy.ts';
import type { Extent } from '../base/vocabulary.ts';
import { type AnswerHead, plainHead } from './answer-head.ts';
import { attemptMs, type NameLookup } from './name-lookup.ts';
import { GONE, HEAD_READ, IDLE, type LineNews, OVER, type Receiver } from './receiver.ts';

/** An idle connection is kept so long, or as long as the other side says, less a moment for a request on its way. */
const KEEP_ALIVE_MS = 30_000;
const KEEP_ALIVE_MARGIN_MS = 1_000;
/** It is looked so often in the time of a silence that is too long whether something came; that much later it may be noticed. */
const LOOKS_MIN = 4;
/** As often at least: who waits for the bytes is to hear that some come. */
const LOOK_EVERY_MS = 500;
/** After a download that did not arrive this way the others go the ordinary way for so long: whatever it was, asking twice is no help. */
const REST_MS = 60_000;

export interface Download {
  /** Path and query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** What is asked for. */
  readonly extent: Extent;
  /** Whether a head announces just that. */
  readonly isExpected: (head: AnswerHead) => boolean;
  /** Where it goes, at its own offsets. Open until `bring` has resolved. */
  readonly fd: number;
  /** Hears of each request that was sent: one more where a connection had been closed while nobody used it. */
  readonly asked: () => void;
  /** Hears up to where bytes are in the file, and of the marks of blocks that became whole. Does not throw. */
  readonly landed: (at: number, marks: readonly number[]) => void;
  /** Hears now and then that bytes come, also of a block that is not whole yet. */
  readonly came?: () => void;
  readonly signal: AbortSignal;
}

interface Parts {
  readonly receiver: Receiver;
  readonly clock: Clock;
  /** The service's. */
  readonly origin: string;
  readonly names: NameLookup;
  readonly deadlines: { readonly connectMs: number; readonly answerMs: number; readonly bodyMs: number };
}

/**
 * Downloads whose bytes the addon's receiver puts into files (ADR 20), from a service without TLS. It brings what it can, and nothing else is
 * asked of it: a refusal, a redirect, an answer of any other kind than the plain one that was expected, a connection that fails or
 * falls silent all mean that the rest is to be asked for in the ordinary way, which knows what to do about each of them.
 *
 * There is no limit of its own: whoever moves data takes his turn in the queue of transfers first, which has as many places as there may be
 * connections.
 */
export class DirectDownloads {
  readonly #parts: Parts;
  /** Used last, last. */
  readonly #idle: Line[] = [];
  readonly #connecting = new Set<Socket>();
  #isClosed = false;
  #restsUntilMs = Number.NEGATIVE_INFINITY;
  #running = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Whether it is worth trying. */
  get isWilling(): boolean {
    return !this.#isClosed && this.#parts.clock.elapsedMs() >= this.#restsUntilMs;
  }

  /** Never rejects. @returns up to where the bytes of the extent are in the file; nothing is written any more */
  async bring(download: Download): Promise<number> {
    const { extent, signal } = download;
    const { clock, origin } = this.#parts;
    const head = headOf(origin, download);
    if (head === null || signal.aborted) return extent.start;
    this.#run(1);
    try {
      for (;;) {
        const used = this.#idle.pop();
        const line = used ?? (await this.#connected(signal));
        const at = (await line?.bring(head, download)) ?? extent.start;
        // Over there it was closed while nobody used it: that says nothing of the service.
        if (used?.wasClosedBefore && !signal.aborted && !this.#isClosed) continue;
        if (at < extent.end && !signal.aborted) this.#restsUntilMs = clock.elapsedMs() + REST_MS;
        return at;
      }
    } finally {
      this.#run(-1);
    }
  }

  /** Ends those under way, too. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#connecting) socket.destroy();
    this.#parts.receiver.close();
  }

  async #connected(signal: AbortSignal): Promise<Line | null> {
    if (this.#isClosed) return null;
    const socket = connecting(this.#parts);
    this.#connecting.add(socket);
    try {
      if (!(await isConnected(socket, signal))) return null;
      // Node has it only to connect: the receiver keeps a duplicate of its descriptor, of which Node does not speak.
      const { fd = -1 } = (socket as unknown as { readonly _handle: { readonly fd?: number } })._handle;
      if (fd < 0 || this.#isClosed) return null;
      const line: Line = new Line(this.#parts, fd, {
        idle: () => void this.#idle.push(line),
        over: () => this.#forget(line),
      });
      return line;
    } catch {
      return null; // No more descriptors.
    } finally {
      this.#connecting.delete(socket);
      socket.destroy();
    }
  }

  #forget(line: Line): void {
    const at = this.#idle.indexOf(line);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  /** A process that waits for bytes does not end. */
  #run(change: 1 | -1): void {
    const before = this.#running;
    this.#running += change;
    if ((before === 0) !== (this.#running === 0) && !this.#isClosed) this.#parts.receiver.hold(this.#running > 0);
  }
}

/** A download on its line. */
interface Job {
  readonly download: Download;
  readonly resolve: (at: number) => void;
  readonly onAbort: () => void;
  head: AnswerHead | null;
  at: number;
}

/** One connection; it serves one download after the other. */
class Line {
  /** By the other side, before the last download got an answer. */
  wasClosedBefore = false;
  readonly #receiver: Receiver;
  readonly #clock: Clock;
  readonly #deadlines: Parts['deadlines'];
  readonly #on: { idle: () => void; over: () => void };
  readonly #id: number;
  #job: Job | null = null;
  #cancelTimer: () => void = () => {};

  /** @throws FsError where the connection cannot be taken over */
  constructor(parts: Parts, fd: number, on: { idle: () => void; over: () => void }) {
    this.#receiver = parts.receiver;
    this.#clock = parts.clock;
    this.#deadlines = parts.deadlines;
    this.#on = on;
    this.#id = parts.receiver.adopt(fd, (news) => this.#hear(news));
  }

  bring(head: Uint8Array, download: Download): Promise<number> {
    return new Promise((resolve) => {
      const onAbort = (): void => this.#drop();
      const { signal, extent } = download;
      this.#job = { download, resolve, onAbort, head: null, at: extent.start };
      signal.addEventListener('abort', onAbort, { once: true });
      this.#after(this.#deadlines.answerMs, () => this.#drop());
      try {
        this.#receiver.ask(this.#id, head);
        download.asked();
      } catch {
        this.#closed();
      }
      if (signal.aborted) this.#drop();
    });
  }

  #hear({ phase, at, bytes }: LineNews): void {
    const job = this.#job;
    if (phase === HEAD_READ && job !== null) this.#answered(job, bytes);
    else if (job?.head != null && at > job.at) {
      job.at = at;
      job.download.landed(at, marksOf(bytes));
    }
    if (phase === IDLE) this.#done();
    else if (phase === OVER) this.#closed();
    else if (phase === GONE) this.#gone();
  }

  #answered(job: Job, bytes: Buffer): void {
    const head = plainHead(bytes);
    const { download } = job;
    const { start, end } = download.extent;
    if (head === null || head.contentLength !== end - start || !download.isExpected(head)) {
      this.#drop();
      return;
    }
    try {
      this.#receiver.land(this.#id, download.fd, start, end - start);
    } catch {
      this.#drop();
      return;
    }
    job.head = head; // From here on news are of this body.
    this.#watch(this.#receiver.received(this.#id), 0);
  }

  /** Ends a body of which nothing comes. @param received bytes of the connection when some came last @param silentMs since then */
  #watch(received: number, silentMs: number): void {
    const { bodyMs } = this.#deadlines;
    const lookMs = Math.min(bodyMs / LOOKS_MIN, LOOK_EVERY_MS);
    this.#after(lookMs, () => {
      const now = this.#receiver.received(this.#id);
      if (now > received) {
        this.#job?.download.came?.();
        this.#watch(now, 0);
      } else if (silentMs + lookMs < bodyMs) this.#watch(received, silentMs + lookMs);
      else this.#drop();
    });
  }

  #done(): void {
    const head = this.#job?.head ?? null;
    const restMs = Math.min(KEEP_ALIVE_MS, (head?.keptMs ?? KEEP_ALIVE_MS) - KEEP_ALIVE_MARGIN_MS);
    this.#settle();
    if (head?.isLasting !== true || restMs <= 0) {
      this.#drop();
      return;
    }
    this.#after(restMs, () => this.#drop());
    this.#on.idle();
  }

  #closed(): void {
    this.wasClosedBefore = this.#job?.head === null;
    this.#drop();
  }

  /** Of no use any more. What is under way on it ends when it is gone: until then its file may be written. */
  #drop(): void {
    this.#cancelTimer();
    this.#on.over();
    this.#receiver.drop(this.#id);
  }

  #gone(): void {
    this.#cancelTimer();
    this.#on.over();
    this.#settle();
  }

  #settle(): void {
    const job = this.#job;
    this.#job = null;
    job?.download.signal.removeEventListener('abort', job.onAbort);
    job?.resolve(job.at);
  }

  #after(ms: number, act: () => void): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#clock.after(ms, act);
  }
}

function connecting({ origin, names, deadlines }: Parts): Socket {
  const { hostname, port } = new URL(origin);
  const to = { host: unbracketed(hostname), port: port === '' ? 80 : Number(port) };
  const how = { lookup: names.lookup, autoSelectFamilyAttemptTimeout: attemptMs(deadlines.connectMs) };
  const socket = connect({ ...to, ...how }, () => names.connected(to.host, socket.remoteAddress));
  socket.pause(); // Node is not to read from it.
  socket.setTimeout(deadlines.connectMs, () => socket.destroy());
  socket.on('error', () => {}); // 'close' follows.
  return socket;
}

function isConnected(socket: Socket, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const abort = (): void => void socket.destroy();
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    socket.on('connect', () => resolve(true));
    socket.on('close', () => {
      signal.removeEventListener('abort', abort);
      resolve(false);
    });
  });
}

/** A request's head as it goes over the line; null for what must not stand in one. */
function headOf(origin: string, { path, headers }: Download): Uint8Array | null {
  const lines = [`GET ${path} HTTP/1.1`, `Host: ${new URL(origin).host}`, 'Connection: keep-alive'];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  if (/[^\x21-\x7e]/.test(path) || lines.some((line) => /[^\t\x20-\x7e]/.test(line))) return null;
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}

function marksOf(bytes: Buffer): number[] {
  const marks: number[] = [];
  for (let at = 0; at < bytes.byteLength; at += 4) marks.push(bytes.readUInt32LE(at));
  return marks;
}
