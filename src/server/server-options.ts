import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { DiskSpace } from './disk-reserve.ts';
import type { FaultRule } from './fault-plan.ts';
import type { HoldingLimits } from './holdings.ts';
import type { ObjectStore } from './object-store.ts';

/** Server options. The defaults are those of the real service, as far as known. */
export interface ReferenceServerOptions {
  readonly dataDirectory: string;
  /**
   * `port` 0 or absent: the port that this data directory used last, or any free port at its first start. Clients know
   * resources by their URLs, so a server keeps its origin.
   */
  readonly listen?: { readonly host?: string; readonly port?: number };
  /** PEM texts; without them plain HTTP, which is refused beyond loopback. */
  readonly tls?: { readonly certificate: string; readonly key: string };
  /** Allows plain HTTP beyond loopback: behind a proxy that terminates TLS. */
  readonly insecure?: boolean;
  /** Where `/healthz` and `/metrics` are answered; nowhere by default. `host`: loopback by default. */
  readonly adminListen?: { readonly host?: string; readonly port?: number };
  /** Origin of URLs in responses, if it differs from the listening address: `https://cloud.example.com`. */
  readonly publicOrigin?: string;
  readonly log?: Logger;
  readonly clock?: Clock;
  /** Lifetime of an access token; one hour (docs/service.md 3.2). */
  readonly accessTokenMs?: number;
  readonly uniqueNames?: boolean;
  readonly foldCase?: boolean;
  /** Complete versions kept per file, including the newest; all by default. */
  readonly versionsKept?: number;
  /** Upper limit of entries on one page, even for a larger `max`; 1,000. */
  readonly pageMax?: number;
  /** Incomplete versions are deleted after this long without progress; 7 days. */
  readonly uploadKeptMs?: number;
  /** Accepts any developer's keys and application: for clients with built-in ones. */
  readonly acceptAnyKeys?: boolean;
  readonly faults?: readonly FaultRule[];
  /** Delay before each response, for benchmarks. */
  readonly latencyMs?: number;
  /** Bandwidth of each body, for benchmarks. */
  readonly bandwidthBytesPerSecond?: number;
  /**
   * Maximum number of open connections; 1000. A further one takes the place of the oldest without a valid token. One
   * account, and one network without a valid token, may have a quarter of them.
   */
  readonly connectionsMax?: number;
  /** A connection without traffic for this long is closed, even within a request; two minutes. */
  readonly silenceMaxMs?: number;
  /** Requests kept in the log; 10,000. */
  readonly requestsKept?: number;
  /** Addresses or networks of proxies whose X-Forwarded-For is believed. */
  readonly trustedProxies?: readonly string[];
  /** Limits of each account beside its quota. */
  readonly limits?: HoldingLimits;
  /** Where the bytes of complete versions are moved to; null: they stay in the data directory. The server closes it. */
  readonly objects?: ObjectStore | null;
  /** The database of several servers, instead of tables in the data directory. Needs `publicOrigin` and `objects`. */
  readonly database?: SharedDatabaseOptions;
  /** The file system of the data; by default queried from the system. */
  readonly disk?: DiskSpace;
}

export interface SharedDatabaseOptions {
  /** `postgres://user@host/name` */
  readonly url: string;
  /** Tests shorten these; see `PostgresUploads`, `PostgresHousekeeping`. */
  readonly partBytes?: number;
  readonly gatheredBytes?: number;
  readonly partBuffers?: number;
  readonly leaseMs?: number;
  readonly deletedAfterMs?: number;
}
