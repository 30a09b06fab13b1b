import type { Endpoint, EndpointKind } from '../protocol/endpoints.ts';
import type { Accounts, Session } from './accounts.ts';
import type { Blobs } from './blobs.ts';
import type { Collections } from './collections.ts';
import type { Database } from './database.ts';
import type { Documents } from './documents.ts';
import type { Exchange } from './exchange.ts';
import type { Histories } from './histories.ts';
import type { Pictures } from './pictures.ts';
import type { Repository } from './repository.ts';
import type { Sealer } from './sealer.ts';
import type { Uploads } from './uploads.ts';

/** The collaborators of all handlers. Handlers translate between documents and rules, and keep no state. */
export interface Service {
  readonly database: Database;
  readonly accounts: Accounts;
  readonly repository: Repository;
  readonly collections: Collections;
  readonly histories: Histories;
  readonly uploads: Uploads;
  readonly blobs: Blobs;
  readonly sealer: Sealer;
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
  /** Of no user for endpoints without an access token. */
  readonly session: Session;
}

/** Responds to a request, or throws Refusal. */
export type Handler<K extends EndpointKind> = (call: Call<K>) => Promise<void>;

/** The methods of each kind of endpoint; any other method is 405. */
export type HandlerTable = { readonly [K in EndpointKind]?: { readonly [M in Method]?: Handler<K> } };

/** Endpoints authenticated by their body, or public (docs/service.md 2.2). */
export const OPEN_ENDPOINTS: ReadonlySet<EndpointKind> = new Set(['appAuthorization', 'authorization', 'publicLink']);
