import type { Endpoint, EndpointKind } from '../protocol/endpoints.ts';
import type { Session } from './accounts.ts';
import type { Documents } from './documents.ts';
import type { Exchange } from './exchange.ts';
import type { Pictures } from './pictures.ts';
import type { Rules } from './rules.ts';

/** The collaborators of all handlers. Handlers translate between documents and rules, and keep no state. */
export interface Service extends Rules {
  readonly pictures: Pictures;
  readonly documents: Documents;
}

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** One request, as passed to a handler. */
export interface Call<K extends EndpointKind> {
  readonly exchange: Exchange;
  readonly endpoint: Endpoint & { readonly kind: K };
  readonly query: URLSearchParams;
  /** The client's network: an IPv4 address, or 64 bits of an IPv6 address. */
  readonly network: string;
  /** Uid of the request's access token; empty for endpoints without one. */
  readonly caller: string;
  /** The session of the user; of no user for endpoints without an access token. */
  readonly session: Session;
}

/** Responds to a request, or throws Refusal. */
export interface Handler<K extends EndpointKind> {
  (call: Call<K>): Promise<void>;
  /** @see checksToken */
  readonly checksToken?: true;
}

/**
 * A handler that calls no rule but those that check the access token in their own step (docs/adr/0057). It sees no `caller`, as
 * other rules take: its session may have ended.
 */
export function checksToken<K extends EndpointKind>(
  handle: (call: Omit<Call<K>, 'caller'>) => Promise<void>,
): Handler<K> {
  return Object.assign((call: Call<K>) => handle(call), { checksToken: true } as const);
}

/** The methods of each kind of endpoint; any other method is 405. */
export type HandlerTable = { readonly [K in EndpointKind]?: { readonly [M in Method]?: Handler<K> } };

/** Endpoints authenticated by their body, or public (docs/service.md 2.2). */
export const OPEN_ENDPOINTS: ReadonlySet<EndpointKind> = new Set(['appAuthorization', 'authorization', 'publicLink']);
