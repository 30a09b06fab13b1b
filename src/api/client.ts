import { systemClock } from '../base/clock.ts';
import { silentLogger } from '../base/log.ts';
import { programVersion } from '../base/program-version.ts';
import { routeTo } from '../mount/service-route.ts';
import type { ApplicationKeys, RemoteService } from '../remote/contract.ts';
import { openService } from '../remote/open-service.ts';

export { ApiError, ProtocolError, SignInError, TransportError, UsageError } from '../base/errors.ts';
export type * from '../base/resources.ts';
export type { Extent, NodeKind, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
export type * from '../remote/contract.ts';

export interface ClientOptions {
  /** Scheme, host and port of the service: `https://api.example.com`. */
  readonly url: string;
  readonly keys: ApplicationKeys;
  /** The result of an earlier `signIn`; without it, call `signIn` first. */
  readonly refreshToken?: string;
  /** Allows plain HTTP beyond this machine. */
  readonly insecure?: boolean;
  /** `http://HOST:PORT`, `socks5h://HOST:PORT` or `none`; by default as the environment says. */
  readonly proxy?: string;
  /** Where the proxy and the trusted authorities are looked up; the process's own by default. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** A client of the service. It opens connections when they are needed; `close` ends them. @throws UsageError for a wrong option */
export function createClient(options: ClientOptions): RemoteService {
  const { url, keys, refreshToken = null, insecure = false, proxy = null, env = process.env } = options;
  return openService({
    baseUrl: url,
    keys,
    refreshToken,
    userAgent: `cfs-mount/${programVersion()}`,
    ...routeTo(url, { env, options: { insecure, proxy }, known: null }),
    clock: systemClock,
    log: silentLogger,
  });
}
