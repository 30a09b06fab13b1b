import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { networkOf, type TrustedProxies } from './remote-address.ts';

export interface LineLimits {
  /** Open connections. */
  readonly linesMax: number;
  readonly trustedProxies: TrustedProxies;
}

/**
 * The open connections of a server, and their limits. A quarter of all connections may belong to one account, and a
 * quarter to one network without a valid token. Connections without a valid token make room for new ones.
 */
export class Lines {
  readonly #limits: LineLimits;
  readonly #open = new Map<Socket, Line>();
  /** Lines by address and port of the peer. */
  readonly #byPeer = new Map<string, Line>();
  readonly #secure = new WeakMap<Socket, Line>();
  /** Connections without a valid token by network, the oldest first. */
  readonly #strangers = new Map<string, Set<Line>>();
  readonly #accounts = new Map<string, number>();
  /** Requests that wait behind others of their connection. */
  readonly #waiting = { count: 0 };
  #bytesOfClosed = 0;

  constructor(http: Server, limits: LineLimits) {
    this.#limits = limits;
    http.on('connection', (socket: Socket) => this.#opened(socket));
    // Requests over TLS name another object than the connection below it.
    http.on('secureConnection', (socket: Socket) => {
      const line = this.#byPeer.get(peerOf(socket));
      if (line === undefined) return;
      line.carry(socket);
      this.#secure.set(socket, line);
    });
  }

  get open(): Iterable<Socket> {
    return this.#open.keys();
  }

  get size(): number {
    return this.#open.size;
  }

  /** Requests that wait behind others of their connection. */
  get waiting(): number {
    return this.#waiting.count;
  }

  get bytesArrived(): number {
    let bytes = this.#bytesOfClosed;
    for (const socket of this.#open.keys()) bytes += socket.bytesRead;
    return bytes;
  }

  /** The connection of a request. */
  of(socket: Socket): Line {
    return this.#open.get(socket) ?? this.#secure.get(socket) ?? new Line(socket, '', this.#waiting);
  }

  /** A request with a valid token came on this connection. @returns false if the account has too many connections */
  belongs(line: Line, uid: string): boolean {
    // A connection that has closed is no longer counted.
    if (line.account === uid || line.isProxy || this.#byPeer.get(line.peer) !== line) return true;
    const lines = this.#accounts.get(uid) ?? 0;
    if (lines >= this.#shareMax) return false;
    this.#leave(line);
    line.account = uid;
    this.#accounts.set(uid, lines + 1);
    return true;
  }

  get #shareMax(): number {
    return Math.max(1, Math.floor(this.#limits.linesMax / 4));
  }

  #opened(socket: Socket): void {
    socket.setNoDelay(true);
    const address = socket.remoteAddress ?? '';
    const line = new Line(socket, networkOf(address), this.#waiting);
    line.isProxy = this.#limits.trustedProxies.has(address);
    this.#open.set(socket, line);
    this.#byPeer.set(line.peer, line);
    socket.on('close', () => {
      this.#open.delete(socket);
      if (this.#byPeer.get(line.peer) === line) this.#byPeer.delete(line.peer);
      this.#bytesOfClosed += socket.bytesRead;
      this.#leave(line);
      line.closed();
    });
    if (!line.isProxy) {
      const strangers = this.#strangers.get(line.network) ?? new Set();
      this.#strangers.set(line.network, strangers.add(line));
      if (strangers.size > this.#shareMax) first(strangers).socket.destroy();
    }
    if (this.#open.size > this.#limits.linesMax) (this.#oldestStranger(line) ?? line).socket.destroy();
  }

  /** The oldest connection of the network that has the most connections without a valid token. */
  #oldestStranger(newest: Line): Line | null {
    let most: Set<Line> | null = null;
    for (const strangers of this.#strangers.values()) if (strangers.size > (most?.size ?? 0)) most = strangers;
    const oldest = most === null ? null : first(most);
    return oldest === newest ? null : oldest;
  }

  #leave(line: Line): void {
    const strangers = this.#strangers.get(line.network);
    strangers?.delete(line);
    if (strangers?.size === 0) this.#strangers.delete(line.network);
    if (line.account === null) return;
    const lines = (this.#accounts.get(line.account) ?? 0) - 1;
    if (lines > 0) this.#accounts.set(line.account, lines);
    else this.#accounts.delete(line.account);
    line.account = null;
  }
}

/**
 * One connection. Node passes on all pipelined requests of a packet at once; here they are handled one after the other,
 * each in a turn of the event loop of its own, so that a connection does not occupy the server. Nothing more is read
 * while some wait.
 */
export class Line {
  readonly socket: Socket;
  readonly network: string;
  readonly peer: string;
  /** The account of the last valid token. */
  account: string | null = null;
  /** A trusted proxy: its requests belong to many clients. */
  isProxy = false;
  readonly #allWaiting: { count: number };
  readonly #queue: ((mayRun: boolean) => void)[] = [];
  /** The stream that requests are read from: the connection, or TLS above it. */
  #stream: Socket;
  #isBusy = false;
  #isPaused = false;

  constructor(socket: Socket, network: string, allWaiting: { count: number }) {
    this.socket = socket;
    this.network = network;
    this.peer = peerOf(socket);
    this.#allWaiting = allWaiting;
    this.#stream = socket;
    this.carry(socket);
  }

  /** Requests are read from `stream` from now on. */
  carry(stream: Socket): void {
    this.#stream = stream;
    // Each queued pipelined response adds a close listener (Exchange), as many as may wait.
    stream.setMaxListeners(0);
    // Reading a body that has arrived resumes the connection.
    stream.on('resume', () => {
      if (this.#isPaused && this.#stream === stream) stream.pause();
    });
  }

  /**
   * Begins a request; call `end` afterwards.
   *
   * @returns null if it may run now. Otherwise a promise that is settled at its turn: true to run, false if too many
   * waited or the connection has closed
   */
  begin(): Promise<boolean> | null {
    if (!this.#isBusy) {
      this.#isBusy = true;
      return null;
    }
    const isTooMany = this.#queue.length >= WAITING_MAX || this.#allWaiting.count >= ALL_WAITING_MAX;
    return new Promise((resolve) => this.#push((mayRun) => resolve(mayRun && !isTooMany)));
  }

  end(): void {
    const next = this.#queue.shift();
    if (next === undefined) {
      this.#isBusy = false;
      return;
    }
    this.#allWaiting.count -= 1;
    if (this.#queue.length === 0 && this.#isPaused) {
      this.#isPaused = false;
      this.#stream.resume();
    }
    setImmediate(next, !this.socket.destroyed);
  }

  closed(): void {
    this.#allWaiting.count -= this.#queue.length;
    for (const next of this.#queue.splice(0)) next(false);
  }

  #push(next: (mayRun: boolean) => void): void {
    this.#queue.push(next);
    this.#allWaiting.count += 1;
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.#stream.pause();
  }
}

/** Requests that may wait on one connection: more come in one packet only. */
const WAITING_MAX = 2000;
const ALL_WAITING_MAX = 20_000;

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function first<T>(set: ReadonlySet<T>): T {
  return set.values().next().value as T;
}
