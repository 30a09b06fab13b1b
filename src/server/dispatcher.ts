import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { StorageError, systemCodeOf } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { type Endpoint, type EndpointKind, parsePath } from '../protocol/endpoints.ts';
import { accountHandlers } from './account-handlers.ts';
import type { Session } from './accounts.ts';
import { Exchange } from './exchange.ts';
import type { FaultPlan } from './fault-plan.ts';
import { fileHandlers } from './file-handlers.ts';
import { folderHandlers } from './folder-handlers.ts';
import { type Handler, type HandlerTable, type Method, OPEN_ENDPOINTS, type Service } from './handler-table.ts';
import type { Line, Lines } from './lines.ts';
import { malformed, noRoom, notFound, Refusal, unauthorized } from './refusal.ts';
import type { TrustedProxies } from './remote-address.ts';
import type { RequestLog } from './request-log.ts';
import { tokenHandlers } from './token-handlers.ts';

/** Dispatches a request to its handler: URL, method, token, faults, refusals, the log. */
export class Dispatcher {
  readonly #service: Service;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #requests: RequestLog;
  readonly #latencyMs: number;
  readonly #bandwidth: number;
  readonly #lines: Lines;
  readonly #trustedProxies: TrustedProxies;
  readonly #requestsPerAccountMax: number;
  /** Requests in progress by account. */
  readonly #ofAccounts = new Map<string, number>();
  readonly #handlers: HandlerTable;
  #underWay = 0;
  /** Called when no request is in progress. */
  readonly #onIdle: (() => void)[] = [];
  /** Last listing responses, by token and target; only while a fault rule asks for stale ones. */
  readonly #lastListings = new Map<string, string>();
  faults: FaultPlan;

  constructor(deps: {
    service: Service;
    clock: Clock;
    log: Logger;
    requests: RequestLog;
    faults: FaultPlan;
    latencyMs: number;
    bandwidth: number;
    lines: Lines;
    trustedProxies: TrustedProxies;
    requestsPerAccountMax: number;
  }) {
    this.#service = deps.service;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#requests = deps.requests;
    this.#latencyMs = deps.latencyMs;
    this.#bandwidth = deps.bandwidth;
    this.#lines = deps.lines;
    this.#trustedProxies = deps.trustedProxies;
    this.#requestsPerAccountMax = deps.requestsPerAccountMax;
    this.faults = deps.faults;
    this.#handlers = {
      ...tokenHandlers(deps.service),
      ...accountHandlers(deps.service),
      ...folderHandlers(deps.service),
      ...fileHandlers(deps.service),
    };
  }

  /** Never throws: every failure becomes a response, or the end of the connection. */
  async answer(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): Promise<void> {
    this.#underWay++;
    try {
      await this.#answer(request, response, expectsContinue);
    } finally {
      if (--this.#underWay === 0) for (const call of this.#onIdle.splice(0)) call();
    }
  }

  /** Resolves when no request is in progress. */
  async idle(): Promise<void> {
    while (this.#underWay > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): Promise<void> {
    const startedMs = this.#clock.elapsedMs();
    const method = request.method ?? '';
    const target = originForm(request.url ?? '');
    const [path, query] = splitTarget(target);
    const endpoint = parsePath(path);
    const kind = endpoint?.kind ?? null;
    const fault = this.faults.next(method, target, kind);
    const exchange = new Exchange({
      request,
      response,
      clock: this.#clock,
      fault,
      expectsContinue,
      bandwidth: this.#bandwidth,
    });
    const line = this.#lines.of(request.socket);
    const turn = line.begin();
    try {
      if (turn === null || (await turn)) await this.#handle(exchange, line, method, endpoint, query);
      else exchange.hangUp();
    } catch (error) {
      await this.#refuse(exchange, error, { method, path });
    } finally {
      line.end();
      const { status, bytesIn, bytesOut } = exchange;
      const durationMs = Math.round(this.#clock.elapsedMs() - startedMs);
      this.#requests.add({ method, path, query, kind, status, bytesIn, bytesOut, durationMs });
      this.#log.debug({ method, path: loggedPath(kind, path), status, bytesIn, bytesOut, durationMs }, 'request');
    }
  }

  async #handle(
    exchange: Exchange,
    line: Line,
    method: string,
    endpoint: Endpoint | null,
    query: string,
  ): Promise<void> {
    const { fault } = exchange;
    const delayMs = this.#latencyMs + (fault.delayMs ?? 0);
    if (delayMs > 0) await this.#clock.sleep(delayMs);
    if (fault.hangUpBefore === true) return exchange.hangUp();
    if (fault.hang === true) return exchange.hang();
    if (fault.garbage === true) return exchange.sendHtml(200, GARBAGE);
    const { headers, httpVersion } = exchange.request;
    if (headers.host === undefined && httpVersion === '1.1') throw malformed('No Host'); // RFC 9112, 3.2
    if (exchange.contentLength !== 0) refuseCoded(headers);
    const { orderedRefusal } = exchange;
    if (orderedRefusal !== null && fault.acceptBytes === undefined) throw orderedRefusal;
    if (endpoint === null) throw notFound();
    const handlers = this.#handlers[endpoint.kind] as Readonly<Record<string, Handler<EndpointKind>>> | undefined;
    // Every GET supports HEAD (RFC 9110, 9.1); the exchange omits the body.
    const asked = method === 'HEAD' ? 'GET' : method;
    const isKnown = handlers !== undefined && Object.hasOwn(handlers, asked);
    if (!isKnown) throw new Refusal(405, 'Method not allowed', { Allow: allowed(Object.keys(handlers ?? {})) });
    const handler = handlers[asked as Method] as Handler<EndpointKind>;
    const request = { exchange, line, endpoint, query, handler };
    if (OPEN_ENDPOINTS.has(endpoint.kind)) return this.#call(request, null);
    const secret = this.#token(exchange.request.headers);
    // A sender that waits for a 100 sends no body for a 401.
    const isChecked = handler.checksToken !== true || exchange.expectsContinue;
    const remembered = isChecked ? null : this.#service.accounts.remembered(secret);
    if (remembered === null) return this.#call(request, await this.#session(secret));
    try {
      await this.#call(request, remembered);
    } catch (error) {
      // An ended session is a 401, whatever else the rule or the request's form would be refused for.
      if (error instanceof Refusal && error.status < 500) await this.#session(secret);
      throw error;
    }
  }

  async #call({ exchange, line, endpoint, query, handler }: Request, session: Session | null): Promise<void> {
    const { fault } = exchange;
    if (fault.expireToken === true && session !== null) {
      await this.#service.accounts.expire(session);
      throw unauthorized();
    }
    const listing = LISTINGS.has(endpoint.kind) ? `${session?.token} ${exchange.request.url}` : null;
    if (listing !== null && fault.staleListing === true) {
      const stale = this.#lastListings.get(listing);
      if (stale !== undefined) return exchange.sendXml(200, stale);
    }
    const network = line.isProxy ? this.#trustedProxies.clientNetwork(exchange.request) : line.network;
    const caller = session?.uid ?? '';
    const call = {
      exchange,
      endpoint,
      query: new URLSearchParams(query),
      network,
      caller,
      session: session ?? NO_SESSION,
    };
    if (session !== null) this.#enter(line, caller);
    try {
      await handler(call);
    } finally {
      if (session !== null) this.#leave(caller);
    }
    if (listing !== null) this.#remember(listing, exchange.text);
  }

  /** A request of an account begins. @throws Refusal 503 during too many of them */
  #enter(line: Line, uid: string): void {
    const underWay = this.#ofAccounts.get(uid) ?? 0;
    if (!this.#lines.belongs(line, uid) || underWay >= this.#requestsPerAccountMax)
      throw new Refusal(503, 'Too many requests of this account', { 'Retry-After': '1' });
    this.#ofAccounts.set(uid, underWay + 1);
  }

  #leave(uid: string): void {
    const left = (this.#ofAccounts.get(uid) ?? 1) - 1;
    if (left > 0) this.#ofAccounts.set(uid, left);
    else this.#ofAccounts.delete(uid);
  }

  /** @throws Refusal 401: the same for a missing and a wrong token */
  #token({ authorization }: IncomingHttpHeaders): string {
    const named = authorization === undefined ? null : this.#service.documents.parse(authorization);
    if (named?.kind !== 'authorization' || named.token === null) throw unauthorized();
    return named.token;
  }

  /** @throws Refusal 401: the same for a wrong and an expired token */
  async #session(secret: string): Promise<Session> {
    const session = await this.#service.accounts.session(secret);
    if (session === null) throw unauthorized();
    return session;
  }

  #remember(listing: string, text: string | null): void {
    if (text === null || !this.faults.rules.some((rule) => rule.then.staleListing === true)) return;
    this.#lastListings.delete(listing);
    this.#lastListings.set(listing, text);
    if (this.#lastListings.size > LAST_LISTINGS_MAX)
      this.#lastListings.delete(this.#lastListings.keys().next().value as string);
  }

  async #refuse(exchange: Exchange, error: unknown, fields: { method: string; path: string }): Promise<void> {
    const refusal = refusalOf(error);
    if (refusal !== error) this.#log.error({ err: error, method: fields.method }, 'request failed');
    else if (refusal.status === 507) this.#log.warn({ method: fields.method }, 'no room for an upload');
    // A response that has begun cannot become a refusal: close the connection, so that the client sees an incomplete
    // response.
    if (exchange.status !== 0) return exchange.hangUp();
    await exchange.sendRefusal(refusal).catch(() => exchange.hangUp());
  }
}

interface Request {
  readonly exchange: Exchange;
  readonly line: Line;
  readonly endpoint: Endpoint;
  readonly query: string;
  readonly handler: Handler<EndpointKind>;
}

const LISTINGS: ReadonlySet<EndpointKind> = new Set([
  'folderContents',
  'userCollectionContents',
  'albumContents',
  'workspaceContents',
  'fileVersions',
]);
const LAST_LISTINGS_MAX = 1000;
const NO_SESSION: Session = { uid: '', token: '', refreshToken: null, signOuts: 0 };
const GARBAGE =
  '<html><head><title>Welcome</title></head><body><p>Please accept the terms of this network</p></body></html>';

function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  const code = systemCodeOf(error);
  const isFull = (error instanceof StorageError && error.full) || code === 'ENOSPC' || code === 'EDQUOT';
  return isFull ? noRoom() : new Refusal(500, 'Internal server error');
}

function allowed(methods: readonly string[]): string {
  return methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : method)).join(', ');
}

/** A request target may be in absolute form, as for a proxy; every server must accept it (RFC 9112, 3.2.2). */
function originForm(target: string): string {
  return target.replace(/^https?:\/\/[^/?]*/i, '');
}

/**
 * Rejects coded bodies: they would be stored in coded form and served as if they were the data. @throws Refusal 501,
 * 415
 */
function refuseCoded(headers: IncomingHttpHeaders): void {
  const { 'transfer-encoding': transfer = '', 'content-encoding': content = '' } = headers;
  // RFC 9112, 6.1, and RFC 9110, 15.5.16
  if (!/^(chunked)?$/i.test(transfer.trim())) throw new Refusal(501, 'Transfer-Encoding: only chunked is understood');
  if (!/^(identity)?$/i.test(content.trim()))
    throw new Refusal(415, 'Content-Encoding: none is understood', { 'Accept-Encoding': 'identity' });
}

function splitTarget(target: string): [path: string, query: string] {
  const mark = target.indexOf('?');
  return mark === -1 ? [target, ''] : [target.slice(0, mark), target.slice(mark + 1)];
}

/** Some URLs contain a token, and unknown ones may contain anything: neither is logged. */
function loggedPath(kind: EndpointKind | null, path: string): string {
  if (kind === null) return '(unknown)';
  return kind === 'appAuthorization' || kind === 'authorization' || kind === 'publicLink'
    ? `/${path.split('/')[1]}`
    : path;
}
