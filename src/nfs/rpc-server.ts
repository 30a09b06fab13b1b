import { createServer, type Server, type Socket } from 'node:net';
import type { Logger } from '../base/log.ts';
import { RecordReader } from './record-reader.ts';
import { ACCEPT, isSupportedRpc, parseCall, type RpcCall, refusal, replyHeader, rpcMismatch } from './rpc-message.ts';
import { XdrError } from './xdr.ts';

/** The longest WRITE, with room for its header. */
const RECORD_BYTES_MAX = 1024 * 1024 + 4096;
/** A kernel uses one connection. */
const CONNECTIONS_MAX = 16;
const IN_FLIGHT_MAX = 64;
/** Replies that the client has not read yet. */
const UNREAD_BYTES_MAX = 8 * 1024 * 1024;
const LAST_FRAGMENT = 0x8000_0000;
/** A reply up to this length is cheaper to copy than to write in pieces. */
const COPIED_BYTES_MAX = 8 * 1024;
const HOST = '127.0.0.1';

/** A body: the reply without its RPC header. */
export type RpcBody = readonly Uint8Array[];

export interface RpcProgram {
  readonly number: number;
  readonly version: number;
  /** @returns the reply's body, or null for an unknown procedure. @throws XdrError for malformed arguments */
  call(call: RpcCall): Promise<RpcBody> | null;
  /** Whether the record of a call is not used after its reply. */
  isOver?(call: RpcCall): boolean;
}

/** Serves RPC programs over TCP on loopback. Connections, requests in flight and record lengths are bounded. */
export class RpcServer {
  readonly #programs: readonly RpcProgram[];
  readonly #log: Logger;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(programs: readonly RpcProgram[], log: Logger) {
    this.#programs = programs;
    this.#log = log;
    this.#server = createServer({ noDelay: true }, (socket) => this.#connected(socket));
    this.#server.maxConnections = CONNECTIONS_MAX;
  }

  /** @param deps.descriptor a listening socket that this process inherited */
  static async listen(deps: {
    readonly programs: readonly RpcProgram[];
    readonly log: Logger;
    readonly descriptor?: number | undefined;
  }): Promise<RpcServer> {
    const server = new RpcServer(deps.programs, deps.log);
    const { descriptor } = deps;
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
    let inFlight = 0;
    const regulate = (): void => {
      const isFull = inFlight >= IN_FLIGHT_MAX || socket.writableLength > UNREAD_BYTES_MAX;
      if (isFull) socket.pause();
      else if (socket.isPaused()) socket.resume();
    };
    const answer = async (record: Buffer): Promise<void> => {
      inFlight++;
      try {
        const call = parseCall(record);
        send(socket, await this.#reply(call));
        if (this.#programs.some((program) => program.number === call.program && program.isOver?.(call)))
          reader.giveBack(record);
      } catch (error) {
        this.#broken(socket, error);
      } finally {
        inFlight--;
        regulate();
      }
    };
    const reader = new RecordReader({ bytesMax: RECORD_BYTES_MAX, onRecord: (record) => void answer(record) });
    socket.on('data', (chunk) => {
      socket.cork();
      try {
        reader.push(chunk);
      } catch (error) {
        this.#broken(socket, error);
      }
      setImmediate(() => socket.uncork()); // one system call for the replies to all calls of this chunk
      regulate();
    });
    socket.on('drain', regulate);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#sockets.delete(socket));
  }

  async #reply(call: RpcCall): Promise<RpcBody> {
    if (!isSupportedRpc(call)) return [rpcMismatch(call)];
    const candidates = this.#programs.filter(({ number }) => number === call.program);
    const program = candidates.find(({ version }) => version === call.version);
    if (program === undefined) {
      const [other] = candidates;
      return [refusal(call, other === undefined ? ACCEPT.programUnavailable : ACCEPT.programMismatch, other?.version)];
    }
    try {
      const body = program.call(call);
      if (body === null) return [refusal(call, ACCEPT.procedureUnavailable)];
      return [replyHeader(call.xid).done(), ...(await body)];
    } catch (error) {
      if (error instanceof XdrError) return [refusal(call, ACCEPT.garbageArguments)];
      this.#log.error({ err: error, procedure: call.procedure }, 'an RPC procedure failed');
      return [refusal(call, ACCEPT.systemError)];
    }
  }

  /** A stream that is no RPC, or lost its position, cannot be continued. */
  #broken(socket: Socket, error: unknown): void {
    this.#log.warn({ err: error }, 'RPC connection closed');
    socket.destroy();
  }
}

function send(socket: Socket, pieces: RpcBody): void {
  if (socket.destroyed) return;
  const bytes = pieces.reduce((total, piece) => total + piece.byteLength, 0);
  const mark = Buffer.allocUnsafe(4);
  mark.writeUInt32BE(LAST_FRAGMENT + bytes, 0);
  if (bytes <= COPIED_BYTES_MAX) {
    socket.write(Buffer.concat([mark, ...pieces], mark.byteLength + bytes));
    return;
  }
  socket.cork();
  socket.write(mark);
  for (const piece of pieces) socket.write(piece);
  socket.uncork();
}
