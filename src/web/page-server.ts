import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import type { Paths } from '../config/paths.ts';
import { exitCode } from '../mount/exit-codes.ts';
import { failureOf } from '../mount/failure.ts';
import type { LiveMessage } from './live-model.ts';
import { LiveMounts } from './live-mounts.ts';
import {
  BYTES_CALLS,
  type BytesActions,
  type BytesCallName,
  CALLS,
  type CallName,
  type PageActions,
  paramsOf,
  type SendBytes,
} from './page-call.ts';
import type { PageFile } from './page-files.ts';
import { RequestGate } from './request-gate.ts';

/** Bits of the token and of each code: 192. */
const SECRET_BYTES = 24;
const BODY_BYTES_MAX = 64 * 1024;
/** Unread bytes of one page before its stream is closed; the page then connects again. */
const UNREAD_BYTES_MAX = 16 * 1024 ** 2;
/** The process ends if no page was open for this long. */
export const IDLE_MS_MAX = 15 * 60_000;

/** Nothing from elsewhere, no inline script or style, no form that leaves, no frame. `blob:` shows previews. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': POLICY,
  'cache-control': 'no-store',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};

export interface PageServerDeps {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly actions: PageActions;
  readonly bytes: BytesActions;
  readonly files: ReadonlyMap<string, PageFile>;
}

/** The HTTP server of the page, on loopback. Its token dies with it. */
export class PageServer {
  readonly port: number;
  readonly #deps: PageServerDeps;
  readonly #server: Server;
  readonly #gate: RequestGate;
  readonly #live: LiveMounts;
  readonly #token = secret();
  /** Single-use codes for the token, with what happens at their use. */
  readonly #codes = new Map<string, () => void>();
  readonly #closing = new AbortController();
  readonly #idle = new AbortController();
  #pages = 0;
  #cancelIdle = (): void => {};

  private constructor(deps: PageServerDeps, server: Server, hosts: readonly string[]) {
    this.#deps = deps;
    this.#server = server;
    this.port = (server.address() as AddressInfo).port;
    this.#gate = new RequestGate({ port: this.port, hosts, token: this.#token });
    this.#live = new LiveMounts(deps);
    server.on('request', (request, response) => void this.#answer(request, response));
    this.#armIdle();
  }

  /** @param how `port`: 0 for any free one; `hosts`: further values of `Host` @throws UsageError (portTaken) */
  static async listen(
    deps: PageServerDeps,
    how: { readonly port: number; readonly hosts: readonly string[] },
  ): Promise<PageServer> {
    const server = createServer({ requestTimeout: 30_000, headersTimeout: 10_000 });
    server.listen(how.port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch (error) {
      const sentence = `port ${how.port} cannot be used (${(error as NodeJS.ErrnoException).code}): choose another --port`;
      throw new UsageError(sentence, exitCode('portTaken'), { cause: error });
    }
    return new PageServer(deps, server, how.hosts);
  }

  get origin(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Aborts when no page was open for IDLE_MS_MAX. */
  get idle(): AbortSignal {
    return this.#idle.signal;
  }

  /** A code that one browser can exchange for the token, once. */
  newCode(onUse: () => void): string {
    const code = secret();
    this.#codes.set(code, onUse);
    return code;
  }

  async close(): Promise<void> {
    this.#cancelIdle();
    this.#closing.abort();
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
      await this.#route(request, response);
    } catch (error) {
      const { sentence } = failureOf(error);
      // Half of the bytes are sent: the page must not take them for all.
      if (response.headersSent) response.destroy();
      else sendJson(response, 422, { error: sentence });
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const refusal = this.#gate.refusalOf(request.headers);
    if (refusal !== null) return sendJson(response, refusal.status, { error: refusal.sentence });
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const file = this.#deps.files.get(path);
    if (request.method === 'GET' && file !== undefined) {
      response.writeHead(200, { 'content-type': file.type, 'content-length': file.bytes.byteLength }).end(file.bytes);
      return;
    }
    if (request.method !== 'POST') return sendJson(response, 404, { error: 'there is no such page' });
    // A browser sends the origin with every POST; another program has no business here without it either.
    if (request.headers.origin === undefined)
      return sendJson(response, 403, { error: 'a request without Origin is refused: use the page' });
    if (path === '/session') {
      this.#session(await bodyOf(request), response);
      return;
    }
    const unknown = this.#gate.refusalWithoutToken(request.headers);
    if (unknown !== null) return sendJson(response, unknown.status, { error: unknown.sentence });
    if (path === '/live') return await this.#follow(request, response);
    const [, kind, name = ''] = /^\/(call|bytes)\/(\w+)$/.exec(path) ?? [];
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    if (kind === 'call' && Object.hasOwn(CALLS, name))
      return await this.#call(name as CallName, await bodyOf(request), response, gone.signal);
    if (kind === 'bytes' && Object.hasOwn(BYTES_CALLS, name))
      return await this.#bytes(name as BytesCallName, await bodyOf(request), response, gone.signal);
    sendJson(response, 404, { error: 'there is no such call' });
  }

  #session(given: unknown, response: ServerResponse): void {
    const { code } = (given ?? {}) as { readonly code?: unknown };
    const onUse = typeof code === 'string' ? this.#codes.get(code) : undefined;
    if (typeof code !== 'string' || onUse === undefined) {
      sendJson(response, 401, { error: 'this code is wrong or was used: run cfs web --open' });
      return;
    }
    this.#codes.delete(code);
    onUse();
    sendJson(response, 200, { token: this.#token });
  }

  async #call(name: CallName, given: unknown, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const params = paramsOf(CALLS[name], given);
    if (params === null) return sendJson(response, 400, { error: 'wrong parameters: load the page again' });
    const act = this.#deps.actions[name] as (params: unknown, signal: AbortSignal) => Promise<unknown>;
    const result = await act(params, signal);
    this.#live.accountsChanged();
    sendJson(response, 200, { result });
  }

  async #bytes(name: BytesCallName, given: unknown, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const params = paramsOf(BYTES_CALLS[name], given);
    if (params === null) return sendJson(response, 400, { error: 'wrong parameters: load the page again' });
    const act = this.#deps.bytes[name] as (params: unknown, send: SendBytes) => Promise<void>;
    await act(params, async (type, chunks) => {
      response.writeHead(200, { 'content-type': type, 'content-disposition': 'attachment' });
      for await (const chunk of chunks) {
        if (signal.aborted) return;
        if (!response.write(chunk)) await once(response, 'drain', { signal }).catch(() => {});
      }
    });
    response.end();
  }

  async #follow(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.resume();
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    this.#pages++;
    this.#cancelIdle();
    const send = (message: LiveMessage): void => {
      response.write(`${JSON.stringify(message)}\n`);
      if (response.writableLength > UNREAD_BYTES_MAX) response.destroy();
    };
    await this.#live.follow(send, AbortSignal.any([gone.signal, this.#closing.signal]));
    this.#pages--;
    if (this.#pages === 0) this.#armIdle();
  }

  #armIdle(): void {
    this.#cancelIdle = this.#deps.clock.after(IDLE_MS_MAX, () => this.#idle.abort());
  }
}

function secret(): string {
  return randomBytes(SECRET_BYTES).toString('base64url');
}

/** @throws UsageError for a body that is too long or no JSON */
async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > BODY_BYTES_MAX) throw new UsageError('the request is too long');
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new UsageError('the request is not JSON');
  }
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
