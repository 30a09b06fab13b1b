import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';

/** A request as it came over the line. */
export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** Which connection it came on, counted from 1. */
  readonly connection: number;
}

/** What to do with a request: everything that can go wrong on a line is a few raw writes. */
export interface Step {
  /** `head`: as soon as the headers are here, with as much of the body as came along. Otherwise when all is here. */
  readonly at?: 'head' | 'end';
  act(socket: Socket, request: SeenRequest): void;
}

/**
 * A TCP server that speaks HTTP badly on request. Steps are taken in order, one per request; `otherwise` answers what no step
 * is left for. Token requests are answered by themselves, unless `tokens` says otherwise, and not counted as requests.
 */
export class ScriptedServer {
  readonly requests: SeenRequest[] = [];
  readonly tokenRequests: SeenRequest[] = [];
  readonly baseUrl: string;
  steps: Step[] = [];
  otherwise: Step = reply(404);
  tokens: Step = { act: (socket, request) => this.#issue(socket, request) };
  tokenLifeMs = 3_600_000;
  /** Connections that are open now. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** Whether the connection with this number is open. */
  isOpen(connection: number): boolean {
    return this.#open.has(connection);
  }

  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #open = new Set<number>();
  #counted = 0;
  #issued = 0;

  /** @param certified key and certificate of a server with TLS */
  static async start(certified: TlsOptions | null = null): Promise<ScriptedServer> {
    const server = certified === null ? createServer() : createTlsServer(certified);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new ScriptedServer(server, certified !== null);
  }

  constructor(server: Server, isTls = false) {
    this.#server = server;
    this.baseUrl = `${isTls ? 'https' : 'http'}://127.0.0.1:${(server.address() as AddressInfo).port}`;
    if (!isTls) server.on('connection', (socket: Socket) => this.#accept(socket));
    else this.#acceptSecured();
  }

  url(path: string): string {
    return this.baseUrl + path;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** A connection with TLS can be reset too: by the one below it. */
  #acceptSecured(): void {
    const below = new Map<number | undefined, Socket>();
    this.#server.on('connection', (socket: Socket) => {
      const { remotePort } = socket;
      below.set(
        remotePort,
        socket.on('error', () => {}).on('close', () => below.delete(remotePort)),
      );
    });
    this.#server.on('secureConnection', (socket: Socket) => {
      const connection = below.get(socket.remotePort);
      socket.resetAndDestroy = () => {
        connection?.resetAndDestroy();
        return socket;
      };
      this.#accept(socket);
    });
  }

  #accept(socket: Socket): void {
    const connection = ++this.#counted;
    this.#sockets.add(socket);
    this.#open.add(connection);
    socket.on('close', () => {
      this.#sockets.delete(socket);
      this.#open.delete(connection);
    });
    socket.on('error', () => {});
    let bytes = Buffer.alloc(0);
    let acted = false;
    socket.on('data', (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      for (;;) {
        const parsed = parseRequest(bytes, connection);
        if (parsed === null) return;
        if (!acted) acted = this.#offer(socket, parsed.request, parsed.length === null ? 'head' : 'end');
        if (parsed.length === null) return;
        bytes = bytes.subarray(parsed.length);
        acted = false;
      }
    });
  }

  /** Takes the next step if it is to be taken now; returns whether it was. */
  #offer(socket: Socket, request: SeenRequest, at: 'head' | 'end'): boolean {
    const isToken = request.path === '/authorization' || request.path === '/app-authorization';
    const step = isToken ? this.tokens : (this.steps[0] ?? this.otherwise);
    if (at === 'head' && step.at !== 'head') return false;
    if (!isToken) this.steps.shift();
    (isToken ? this.tokenRequests : this.requests).push(request);
    step.act(socket, request);
    return true;
  }

  #issue(socket: Socket, request: SeenRequest): void {
    const expiration = new Date(Date.now() + this.tokenLifeMs).toISOString().replace('Z', '+00:00');
    const body = `<authorization><expiration>${expiration}</expiration><user>${this.url('/user/1')}</user></authorization>`;
    const location = this.url(`/authorization/T${++this.#issued}`);
    reply(201, { Location: location }, body).act(socket, request);
  }
}

/** A proper answer with a length. */
export function reply(
  status: number,
  headers: Readonly<Record<string, string>> = {},
  body: string | Buffer = '',
): Step {
  return { act: (socket) => void socket.write(answer(status, headers, body)) };
}

export function xml(body: string, headers: Readonly<Record<string, string>> = {}): Step {
  return reply(200, { 'Content-Type': 'application/xml; charset=UTF-8', ...headers }, body);
}

export function answer(status: number, headers: Readonly<Record<string, string>>, body: string | Buffer): Buffer {
  const bytes = Buffer.from(body as string);
  const lines = Object.entries({
    Date: new Date().toUTCString(),
    'Content-Length': String(bytes.byteLength),
    ...headers,
  });
  const head = `HTTP/1.1 ${status} Scripted\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
  return Buffer.concat([Buffer.from(head), bytes]);
}

/** Text as it is, then the end of the connection. */
export function raw(text: string | Buffer, then: 'end' | 'reset' | 'stay' = 'end'): Step {
  return {
    act: (socket) => {
      socket.write(text, () => {
        if (then === 'end') socket.end();
        if (then === 'reset') socket.resetAndDestroy();
      });
    },
  };
}

/** The request was received (and perhaps acted upon), and nobody ever hears of it. */
export function loseAnswer(act: (request: SeenRequest) => void = () => {}): Step {
  return {
    act: (socket, request) => {
      act(request);
      socket.destroy();
    },
  };
}

/** Reads, and never answers. */
export const hang: Step = { act: () => {} };

/** The connection ends before the body of the request is here. */
export const cutRequest: Step = { at: 'head', act: (socket) => void socket.destroy() };

/** Waits for a condition; fails after a minute. */
export async function until(holds: () => boolean, what: string): Promise<void> {
  const endMs = performance.now() + 60_000;
  while (!holds()) {
    if (performance.now() > endMs) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** The first request in `bytes`; `length` null while its body is still coming. */
function parseRequest(bytes: Buffer, connection: number): { request: SeenRequest; length: number | null } | null {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd === -1) return null;
  const [start = '', ...lines] = bytes.subarray(0, headEnd).toString('latin1').split('\r\n');
  const [method = '', path = ''] = start.split(' ');
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]),
  );
  const bodyStart = headEnd + 4;
  const end = bodyStart + Number(headers['content-length'] ?? 0);
  const whole = bytes.byteLength >= end;
  const body = Buffer.from(bytes.subarray(bodyStart, Math.min(end, bytes.byteLength)));
  return { request: { method, path, headers, body, connection }, length: whole ? end : null };
}
