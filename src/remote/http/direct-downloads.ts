import { connect, type Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { unbracketed } from '../../base/proxy.ts';
import type { Extent } from '../../base/vocabulary.ts';
import type { TrustStore } from '../trust-store.ts';
import { type AnswerHead, plainHead } from './answer-head.ts';
import { Handshake, UNSUITABLE } from './handshake.ts';
import { attemptMs, type NameLookup } from './name-lookup.ts';
import { GONE, HEAD_READ, IDLE, type LineNews, OVER, type Receiver, type RecordKeys } from './receiver.ts';

/** Keep-alive of an idle connection, unless the peer announces a shorter one. A margin covers a request in transit. */
const KEEP_ALIVE_MS = 30_000;
const KEEP_ALIVE_MARGIN_MS = 1_000;
/** Checks for progress within one silence limit; detection is late by at most one interval. */
const LOOKS_MIN = 4;
/** Longest interval between checks: waiting readers must learn that bytes arrive. */
const LOOK_EVERY_MS = 500;
/** After a failed direct download, all downloads use the ordinary path for this long, to avoid doubled requests. */
const REST_MS = 60_000;

export interface Download {
  /** Path and query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The requested range. */
  readonly extent: Extent;
  /** Whether a head announces just that. */
  readonly isExpected: (head: AnswerHead) => boolean;
  /** Target file; bytes keep their offsets. Open until `bring` has resolved. */
  readonly fd: number;
  /** Called for each request sent; again if the connection had been closed while idle. */
  readonly asked: () => void;
  /** Called with the end of the bytes now in the file and the checksums of completed blocks. Does not throw. */
  readonly landed: (at: number, checksums: readonly number[]) => void;
  /** Called periodically while bytes arrive, even within an incomplete block. */
  readonly came?: () => void;
  readonly signal: AbortSignal;
}

interface Parts {
  readonly receiver: Receiver;
  readonly clock: Clock;
  /** The service's. */
  readonly origin: string;
  /** The authorities of a service with TLS; null without. */
  readonly trust: TrustStore | null;
  readonly names: NameLookup;
  readonly deadlines: { readonly connectMs: number; readonly answerMs: number; readonly bodyMs: number };
}

/**
 * Downloads that the addon's receiver writes into files (ADR 20). Anything but the expected plain response ends the
 * direct attempt: a refusal, a redirect, another kind of response, a failed or silent connection, a certificate that
 * does not convince. The ordinary path then requests the remainder and handles the failure.
 *
 * There is no limit on connections here: callers first take a slot of the transfer queue, which has as many slots as
 * there may be connections.
 */
export class DirectDownloads {
  readonly #parts: Parts;
  /** Most recently used at the end. */
  readonly #idle: Line[] = [];
  readonly #connecting = new Set<Socket>();
  #isClosed = false;
  #restsUntilMs = Number.NEGATIVE_INFINITY;
  #running = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Whether direct downloads are currently enabled. */
  get isWilling(): boolean {
    return !this.#isClosed && this.#parts.clock.elapsedMs() >= this.#restsUntilMs;
  }

  /** Never rejects. @returns the end of the bytes of the extent in the file; nothing is written after it resolves */
  async bring(download: Download): Promise<number> {
    const { extent, signal } = download;
    const head = headOf(this.#parts.origin, download);
    if (head === null || signal.aborted) return extent.start;
    this.#run(1);
    try {
      for (;;) {
        const used = this.#idle.pop();
        const line = used ?? (await this.#connected(signal));
        const at = (await line?.bring(head, download)) ?? extent.start;
        // The peer closed the idle connection: that is not a failure of the service.
        if (used?.wasClosedBefore && !signal.aborted && !this.#isClosed) continue;
        if (at < extent.end && !signal.aborted) this.#rest();
        return at;
      }
    } finally {
      this.#run(-1);
    }
  }

  /** Aborts downloads in progress. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#connecting) socket.destroy();
    this.#parts.receiver.close();
  }

  async #connected(signal: AbortSignal): Promise<Line | null> {
    if (this.#isClosed) return null;
    const { trust, clock, deadlines } = this.#parts;
    const handshake = trust === null ? null : new Handshake(hostOf(this.#parts.origin), trust.context);
    const socket = connecting(this.#parts, handshake);
    this.#connecting.add(socket);
    const stop = (): void => void socket.destroy();
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    const cancelTimer = clock.after(deadlines.connectMs, stop);
    try {
      if (!(await isConnected(socket))) return null;
      const keys = handshake === null ? null : await handshake.keys(socket);
      if (keys === UNSUITABLE) this.#restsUntilMs = Number.POSITIVE_INFINITY;
      if (keys === UNSUITABLE || (handshake !== null && keys === null)) return null;
      // Node only connects: the receiver keeps a duplicate of the descriptor, which Node does not expose.
      const { fd = -1 } = (socket as unknown as { readonly _handle: { readonly fd?: number } })._handle;
      if (fd < 0 || this.#isClosed || signal.aborted) return null;
      const line: Line = new Line(this.#parts, fd, keys, {
        idle: () => void this.#idle.push(line),
        over: () => this.#forget(line),
      });
      return line;
    } catch {
      return null; // out of descriptors
    } finally {
      cancelTimer();
      signal.removeEventListener('abort', stop);
      this.#connecting.delete(socket);
      socket.destroy();
    }
  }

  #rest(): void {
    this.#restsUntilMs = Math.max(this.#restsUntilMs, this.#parts.clock.elapsedMs() + REST_MS);
  }

  #forget(line: Line): void {
    const at = this.#idle.indexOf(line);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  /** Keeps the process alive while downloads are in progress. */
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

/** One connection, with one download at a time. */
class Line {
  /** Closed by the peer before the last download got a response. */
  wasClosedBefore = false;
  readonly #receiver: Receiver;
  readonly #clock: Clock;
  readonly #deadlines: Parts['deadlines'];
  readonly #on: { idle: () => void; over: () => void };
  readonly #id: number;
  #job: Job | null = null;
  #cancelTimer: () => void = () => {};

  /** @throws FsError where the connection cannot be taken over */
  constructor(parts: Parts, fd: number, keys: RecordKeys | null, on: { idle: () => void; over: () => void }) {
    this.#receiver = parts.receiver;
    this.#clock = parts.clock;
    this.#deadlines = parts.deadlines;
    this.#on = on;
    this.#id = parts.receiver.adopt(fd, keys, (news) => this.#hear(news));
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
      job.download.landed(at, checksumsOf(bytes));
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
    job.head = head; // Later events are about this body.
    this.#watch(this.#receiver.received(this.#id), 0);
  }

  /**
   * Aborts a silent body. @param received the connection's byte count at the last progress @param silentMs time since
   * then
   */
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

  /**
   * Discards the connection. The job in progress ends with the OVER or GONE event: until then its file may be written.
   */
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

function connecting({ origin, trust, names, deadlines }: Parts, handshake: Handshake | null): Socket {
  const { port } = new URL(origin);
  const host = hostOf(origin);
  const socket = connect(
    {
      host,
      port: port === '' ? (trust === null ? 80 : 443) : Number(port),
      lookup: names.lookup,
      autoSelectFamilyAttemptTimeout: attemptMs(deadlines.connectMs),
      ...(handshake !== null && { noDelay: true, onread: handshake.onread }),
    },
    () => names.connected(host, socket.remoteAddress),
  );
  if (handshake === null) socket.pause(); // Node must not read from it.
  socket.on('error', () => {}); // 'close' follows.
  return socket;
}

function hostOf(origin: string): string {
  return unbracketed(new URL(origin).hostname);
}

function isConnected(socket: Socket): Promise<boolean> {
  return new Promise((resolve) => {
    socket.on('connect', () => resolve(true));
    socket.on('close', () => resolve(false));
  });
}

/** The request head in wire format; null if it contains characters that are not allowed. */
function headOf(origin: string, { path, headers }: Download): Uint8Array | null {
  const lines = [`GET ${path} HTTP/1.1`, `Host: ${new URL(origin).host}`, 'Connection: keep-alive'];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  if (/[^\x21-\x7e]/.test(path) || lines.some((line) => /[^\t\x20-\x7e]/.test(line))) return null;
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}

function checksumsOf(bytes: Buffer): number[] {
  const checksums: number[] = [];
  for (let at = 0; at < bytes.byteLength; at += 4) checksums.push(bytes.readUInt32LE(at));
  return checksums;
}
