import type { Endpoint, EndpointKind } from '../protocol/endpoints.ts';
import type { Accounts } from './accounts.ts';
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

/** What handlers work with. They translate between documents and rules, and hold nothing themselves. */
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

/** One request, as a handler gets it. */
export interface Call<K extends EndpointKind> {
  readonly exchange: Exchange;
  readonly endpoint: Endpoint & { readonly kind: K };
  readonly query: URLSearchParams;
  /** Whose access token came with the request; empty for the endpoints that take none. */
  readonly caller: string;
}

/** Answers a request, or throws Refusal. */
export type Handler<K extends EndpointKind> = (call: Call<K>) => Promise<void>;

/** What each kind of endpoint understands; any other method is 405. */
export type HandlerTable = { readonly [K in EndpointKind]?: { readonly [M in Method]?: Handler<K> } };

/** Endpoints that are authenticated by what is in their body, or by nothing (docs/service.md 2.2; a public link is public). */
export const OPEN_ENDPOINTS: ReadonlySet<EndpointKind> = new Set(['appAuthorization', 'authorization', 'publicLink']);
