import { readFileSync } from 'node:fs';
import { UsageError } from '../base/errors.ts';
import { credentialsInEnvironment, isLoopback, proxyInEnvironment, type ServiceProxy } from '../base/proxy.ts';
import type { Options } from '../config/options.ts';
import { systemCertificates } from '../remote/certificates.ts';
import type { CertificateSource } from '../remote/trust-store.ts';
import type { Account } from './account-file.ts';
import { visible } from './mount-event.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** The route to the service, for the transport of every part that contacts it. */
export interface ServiceRoute {
  readonly insecure: boolean;
  readonly proxy: ServiceProxy | null;
  readonly certificates: CertificateSource;
}

/** A direct route, for the server of `cfs demo`. */
export const DIRECT_ROUTE: ServiceRoute = { insecure: false, proxy: null, certificates: () => null };

/** Variables that determine the route and hold no secret. A service manager does not pass them on automatically. */
export const ROUTE_VARIABLES = ['SSL_CERT_FILE', 'NODE_EXTRA_CA_CERTS'] as const;

/**
 * Decides the route to the service, as the only code: by the options, otherwise by the environment. The account adds its saved values.
 *
 * @param known the saved account; null before a sign-in
 * @throws UsageError naming the variable that holds no address of a proxy
 */
export function routeTo(
  origin: string,
  how: {
    readonly env: Env;
    readonly options: Pick<Options, 'insecure' | 'proxy'>;
    readonly known: Pick<Account, 'insecure' | 'proxy'> | null;
  },
): ServiceRoute {
  const { env, options, known } = how;
  return {
    insecure: known?.insecure === true || options.insecure,
    proxy: isLoopback(new URL(origin).hostname) ? null : proxyTo(origin, how),
    certificates: () => trustedCertificates(env),
  };
}

function proxyTo(origin: string, { env, options, known }: Parameters<typeof routeTo>[1]): ServiceProxy | null {
  if (options.proxy === 'none') return null;
  const named =
    options.proxy === null
      ? proxyInEnvironment(origin, env)
      : { address: options.proxy, credentials: null, source: '--proxy' };
  if (named === null || named.credentials !== null) return named;
  const kept = known?.proxy?.address === named.address ? known.proxy : null;
  return { ...named, credentials: credentialsInEnvironment(named.address, env) ?? kept };
}

/**
 * The trusted certificate authorities, as PEM: the file that SSL_CERT_FILE names (as for OpenSSL and curl), or that of the system. The
 * authorities of NODE_EXTRA_CA_CERTS are added. Null if the system has no such file: then
 * Node's own list counts, which has NODE_EXTRA_CA_CERTS.
 *
 * @throws UsageError naming the variable whose file cannot be read or holds no certificates
 */
function trustedCertificates(env: Env): string | null {
  const named = pemOf(env, 'SSL_CERT_FILE') ?? systemCertificates();
  const extra = named === null ? null : pemOf(env, 'NODE_EXTRA_CA_CERTS');
  return extra === null ? named : `${named}\n${extra}`;
}

function pemOf(env: Env, variable: (typeof ROUTE_VARIABLES)[number]): string | null {
  const path = env[variable] ?? '';
  if (path === '') return null;
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`${variable} names ${visible(path)}, which cannot be read (${code})`, undefined, {
      cause: error,
    });
  }
  if (!text.includes('-----BEGIN '))
    throw new UsageError(`${variable} names ${visible(path)}, which holds no certificates`);
  return text;
}
