import { BlockList, isIP } from 'node:net';
import { UsageError } from './errors.ts';

/** A proxy between this machine and the service. */
export interface ServiceProxy {
  /** Scheme, host and port, without credentials: `http://proxy.example:3128`. Shown to users. */
  readonly address: string;
  readonly credentials: ProxyCredentials | null;
  /** The option or environment variable that named the proxy: `--proxy`, `HTTPS_PROXY`. */
  readonly source: string;
}

export interface ProxyCredentials {
  readonly username: string;
  readonly password: string;
}

type Env = Readonly<Record<string, string | undefined>>;

/** Schemes and their default ports. All SOCKS schemes mean SOCKS 5 with name resolution by the proxy. */
const SCHEMES: ReadonlyMap<string, { readonly scheme: string; readonly port: string }> = new Map([
  ['http:', { scheme: 'http', port: '80' }],
  ['https:', { scheme: 'https', port: '443' }],
  ['socks:', { scheme: 'socks5', port: '1080' }],
  ['socks5:', { scheme: 'socks5', port: '1080' }],
  ['socks5h:', { scheme: 'socks5', port: '1080' }],
]);

/** The first non-empty variable applies. The table in docs/troubleshooting.md lists them. */
const VARIABLES = {
  'https:': ['https_proxy', 'HTTPS_PROXY', 'all_proxy', 'ALL_PROXY', 'http_proxy', 'HTTP_PROXY'],
  'http:': ['http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'],
} as const;
const EXEMPTIONS = ['no_proxy', 'NO_PROXY'] as const;

/**
 * Parses a proxy address as users write it: `host:port` means `http://host:port`.
 *
 * @throws RangeError unless it consists of scheme, credentials, host and port. The message never repeats the text,
 * which may contain a password.
 */
export function parseProxy(text: string): Pick<ServiceProxy, 'address' | 'credentials'> {
  const trimmed = text.trim();
  const whole = /^[a-z][a-z0-9+.-]*:\/\//i.test(trimmed) ? trimmed : `http://${trimmed}`;
  const url = URL.canParse(whole) ? new URL(whole) : null;
  const kind = url === null ? undefined : SCHEMES.get(url.protocol);
  const decoded = url === null ? null : credentialsOf(url);
  const isBare = url !== null && /^\/?$/.test(url.pathname) && url.search === '' && url.hash === '';
  if (url === null || kind === undefined || decoded === undefined || !isBare || !/^[^\s"'<>%]+$/.test(url.hostname))
    throw new RangeError('not the address of a proxy, such as http://proxy.example:3128');
  const port = url.port === '' ? kind.port : url.port;
  return { address: `${kind.scheme}://${url.hostname.toLowerCase()}:${port}`, credentials: decoded };
}

/**
 * The proxy for `origin` in the environment.
 *
 * @returns null if there is none, or NO_PROXY exempts the service
 * @throws UsageError naming the variable with an invalid address
 */
export function proxyInEnvironment(origin: string, env: Env): ServiceProxy | null {
  const { protocol } = new URL(origin);
  const source = VARIABLES[protocol === 'https:' ? 'https:' : 'http:'].find((name) => isSet(env[name]));
  if (source === undefined || isExempt(origin, env)) return null;
  try {
    return { ...parseProxy(env[source] as string), source };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new UsageError(`${source}: ${error.message}`, undefined, { cause: error });
  }
}

/** User name and password in the environment for the proxy at `address`, regardless of NO_PROXY. */
export function credentialsInEnvironment(address: string, env: Env): ProxyCredentials | null {
  for (const name of VARIABLES['https:']) {
    if (!isSet(env[name])) continue;
    try {
      const named = parseProxy(env[name] as string);
      if (named.address === address && named.credentials !== null) return named.credentials;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
    }
  }
  return null;
}

/** Whether a URL's host name is this machine, which a proxy cannot reach. */
export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}

/**
 * NO_PROXY: names, addresses and networks, separated by commas or spaces. A name exempts its subdomains, `host:port` one port,
 * `10.0.0.0/8` a network, `*` everything.
 */
function isExempt(origin: string, env: Env): boolean {
  const { protocol, hostname, port } = new URL(origin);
  const [host, service] = [unbracketed(hostname), port === '' ? (protocol === 'https:' ? '443' : '80') : port];
  const list = EXEMPTIONS.map((name) => env[name]).find(isSet) ?? '';
  return list.split(/[\s,]+/).some((entry) => {
    if (entry === '') return false;
    if (entry === '*') return true;
    if (entry.includes('/')) return isWithin(host, entry);
    const [, name = entry, only] = /^(\[[^\]]*\]|[^:]*):(\d+)$/.exec(entry) ?? [];
    if (only !== undefined && only !== service) return false;
    const exempt = unbracketed(name.toLowerCase()).replace(/^\*?\./, '');
    return host === exempt || host.endsWith(`.${exempt}`);
  });
}

function isWithin(host: string, network: string): boolean {
  const [base = '', length = ''] = network.split('/');
  const family = isIP(host);
  if (family === 0 || isIP(unbracketed(base)) !== family || !/^\d{1,3}$/.test(length)) return false;
  const kind = family === 4 ? 'ipv4' : 'ipv6';
  if (Number(length) > (family === 4 ? 32 : 128)) return false;
  const list = new BlockList();
  list.addSubnet(unbracketed(base), Number(length), kind);
  return list.check(host, kind);
}

/** @returns undefined for invalid percent encoding */
function credentialsOf({ username, password }: URL): ProxyCredentials | null | undefined {
  if (username === '' && password === '') return null;
  try {
    return { username: decodeURIComponent(username), password: decodeURIComponent(password) };
  } catch {
    return undefined;
  }
}

function isSet(value: string | undefined): boolean {
  return value !== undefined && value.trim() !== '';
}

/** The host without the brackets of an IPv6 address in a URL. */
export function unbracketed(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '');
}
