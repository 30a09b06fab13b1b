import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ReceiveAwake } from '../base/native.ts';
import type { Answer } from '../kernel/binding.ts';
import { BusyWait } from './busy-wait.ts';
import { DirectSocket } from './direct-socket.ts';
import { LAST_FRAGMENT, RecordReader } from './record-reader.ts';
import { ACCEPT, isSupportedRpc, parseCall, type RpcCall, refusal, replyHeader, rpcMismatch } from './rpc-message.ts';
import { XdrError } from './xdr.ts';

/** The longest WRITE, with room for its header. */
const RECORD_BYTES_MAX = 1024 * 1024 + 4096;
/** A kernel uses one connection. */
const CONNECTIONS_MAX = 16;
const IN_FLIGHT_MAX = 64;
/** Replies that the client has not read yet. */
const UNREAD_BYTES_MAX = 8 * 1024 * 1024;
const MARK_BYTES = 4;
/** A reply up to this length is cheaper to copy than to write in pieces. */
const COPIED_BYTES_MAX = 8 * 1024;
/** Far below the number of pieces that writev(2) takes (1,024). */
const SHORT_MAX = 64;
const HOST = '127.0.0.1';

/** A body: the reply without its RPC header. */
export type RpcBody = readonly Uint8Array[];

export interface RpcProgram {
  readonly number: number;
  readonly version: number;
  /** @returns the reply's body, or null for an unknown procedure. @throws XdrError for malformed arguments */
  call(call: RpcCall): Answer<RpcBody> | null;
  /** Whether the record of a call is not used after its reply. */
  isOver?(call: RpcCall): boolean;
}

export interface RpcServerDeps {
  readonly programs: readonly RpcProgram[];
  readonly log: Logger;
  readonly clock: Clock;
  /** A listening socket that this process inherited. */
  readonly descriptor?: number | undefined;
  readonly onConnected?: (() => void) | undefined;
  /** That of the addon by default. */
  readonly receiveAwake?: ReceiveAwake;
}

/** Serves RPC programs over TCP on loopback. Connections, requests in flight and record lengths are bounded. */
export class RpcServer {
  readonly #programs: readonly RpcProgram[];
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #server: Server;
  readonly #receiveAwake: ReceiveAwake | undefined;
  readonly #sockets = new Set<Socket>();

  private constructor(deps: Omit<RpcServerDeps, 'descriptor'>) {
    this.#programs = deps.programs;
    this.#log = deps.log;
    this.#clock = deps.clock;
    this.#receiveAwake = deps.receiveAwake;
    this.#server = createServer({ noDelay: true }, (socket) => {
      this.#connected(socket);
      deps.onConnected?.();
    });
    this.#server.maxConnections = CONNECTIONS_MAX;
  }

  static async listen({ descriptor, ...deps }: RpcServerDeps): Promise<RpcServer> {
    const server = new RpcServer(deps);
    await new Promise<void>((resolve, reject) => {
      const where = descriptor === undefined ? { port: 0, host: HOST } : { fd: descriptor };
      server.#server.once('error', reject).listen(where, resolve);
    });
    return server;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** The descriptor of the listening socket: a child process that inherits it keeps the port from every other process. */
  get descriptor(): number {
    // Missing in Node's types and documentation; used by Node itself (lib/net.js). -1: unknown.
    const { _handle } = this.#server as unknown as { readonly _handle?: { readonly fd?: number } | null };
    return _handle?.fd ?? -1;
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #connected(socket: Socket): void {
    this.#sockets.add(socket);
    const direct = new DirectSocket(socket, this.#receiveAwake);
    const replies = new Replies(direct);
    let inFlight = 0;
    const regulate = (): void => {
      const isFull = inFlight >= IN_FLIGHT_MAX || socket.writableLength > UNREAD_BYTES_MAX;
      if (isFull) socket.pause();
      else if (socket.isPaused()) socket.resume();
    };
    const replied = (call: RpcCall, reply: RpcBody, record: Buffer): void => {
      replies.add(reply);
      if (this.#programs.some((program) => program.number === call.program && program.isOver?.(call)))
        reader.giveBack(record);
    };
    const later = async (call: RpcCall, reply: Promise<RpcBody>, record: Buffer): Promise<void> => {
      inFlight++;
      try {
        replied(call, await reply, record);
        replies.flush();
      } catch (error) {
        this.#broken(socket, error);
      } finally {
        inFlight--;
        regulate();
      }
    };
    const answer = (record: Buffer): void => {
      const call = parseCall(record);
      const reply = this.#reply(call);
      if (reply instanceof Promise) void later(call, reply, record);
      else replied(call, reply, record);
    };
    const reader = new RecordReader({ bytesMax: RECORD_BYTES_MAX, onRecord: answer });
    const answerAll = (chunk: Buffer): void => {
      reader.push(chunk);
      // The rest of a long record goes straight to its place.
      for (let place = reader.place; place !== null; place = reader.place) {
        const bytes = direct.receive(place);
        if (bytes === 0) break;
        const isAll = bytes === place.byteLength;
        reader.filled(bytes);
        if (!isAll) break;
      }
      replies.flush();
    };
    const busyWait = new BusyWait({ clock: this.#clock, receive: (target, waitNs) => direct.receive(target, waitNs) });
    socket.on('data', (chunk) => {
      try {
        // A reply that is still to come, or to be sent, needs the event loop.
        busyWait.answer(chunk, answerAll, () => inFlight === 0 && socket.writableLength === 0);
      } catch (error) {
        this.#broken(socket, error);
      }
      regulate();
    });
    socket.on('drain', regulate);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#sockets.delete(socket));
  }

  #reply(call: RpcCall): Answer<RpcBody> {
    if (!isSupportedRpc(call)) return [rpcMismatch(call)];
    const program = this.#programs.find(({ number, version }) => number === call.program && version === call.version);
    if (program === undefined) {
      const other = this.#programs.find(({ number }) => number === call.program);
      return [refusal(call, other === undefined ? ACCEPT.programUnavailable : ACCEPT.programMismatch, other?.version)];
    }
    const failed = (error: unknown): RpcBody => {
      if (error instanceof XdrError) return [refusal(call, ACCEPT.garbageArguments)];
      this.#log.error({ err: error, procedure: call.procedure }, 'an RPC procedure failed');
      return [refusal(call, ACCEPT.systemError)];
    };
    const done = (body: RpcBody): RpcBody => [replyHeader(call.xid).done(), ...body];
    try {
      const body = program.call(call);
      if (body === null) return [refusal(call, ACCEPT.procedureUnavailable)];
      return body instanceof Promise ? body.then(done).catch(failed) : done(body);
    } catch (error) {
      return failed(error);
    }
  }

  /** A stream that is no RPC, or lost its position, cannot be continued. */
  #broken(socket: Socket, error: unknown): void {
    this.#log.warn({ err: error }, 'RPC connection closed');
    socket.destroy();
  }
}

/** The replies to the calls of one chunk: short ones are collected for one system call. */
class Replies {
  readonly #direct: DirectSocket;
  #short: Buffer[] = [];

  constructor(direct: DirectSocket) {
    this.#direct = direct;
  }

  /** The memory of the reply may be reused afterwards. */
  add(pieces: RpcBody): void {
    let bytes = 0;
    for (const piece of pieces) bytes += piece.byteLength;
    const isShort = bytes <= COPIED_BYTES_MAX;
    const head = Buffer.allocUnsafe(isShort ? MARK_BYTES + bytes : MARK_BYTES);
    head.writeUInt32BE(LAST_FRAGMENT + bytes, 0);
    if (isShort) {
      let at = MARK_BYTES;
      for (const piece of pieces) {
        head.set(piece, at);
        at += piece.byteLength;
      }
      this.#short.push(head);
      if (this.#short.length >= SHORT_MAX) this.flush();
      return;
    }
    this.flush();
    this.#direct.send([head, ...pieces]);
  }

  flush(): void {
    if (this.#short.length === 0) return;
    this.#direct.send(this.#short);
    this.#short = [];
  }
}
