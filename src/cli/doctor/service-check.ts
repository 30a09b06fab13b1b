import { ApiError, ProtocolError, SignInError, TransportError, UsageError } from '../../base/errors.ts';
import { silentLogger } from '../../base/log.ts';
import { formatDuration } from '../../config/units.ts';
import { HttpService } from '../../remote/http-service.ts';
import { StrangeNetworkError } from '../../remote/requests.ts';
import { Transport } from '../../remote/transport.ts';
import type { Account } from '../account-file.ts';
import { believedCertificates } from '../believed-certificates.ts';
import { type Finding, type FindingName, finding } from './finding.ts';
import type { Machine } from './machine.ts';

/** A Date header has whole seconds, and the answer took its time. */
const SKEW_MS_MAX = 60_000;
const USER_AGENT = 'cfs-mount';

const TLS_FINDINGS: readonly (readonly [RegExp, FindingName])[] = [
  [/^CERT_HAS_EXPIRED$/, 'tls-expired'],
  [/^CERT_NOT_YET_VALID$/, 'tls-not-yet-valid'],
  [/^(ERR_TLS_CERT_ALTNAME_INVALID|HOSTNAME_MISMATCH)$/, 'tls-wrong-host'],
  [/^(UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|CERT_UNTRUSTED|CERT_CHAIN|INVALID_CA)/, 'tls-unknown-authority'],
  [/^(ERR_TLS_|ERR_SSL_|EPROTO|CERT_|INVALID_PURPOSE|PATH_LENGTH)/, 'tls-broken'],
];

/**
 * The way to the service, one step after the other: name, connection, certificate, clock, sign-in. What fails first is told,
 * and nothing behind it is asked. Nothing is changed there; the sign-in takes an access token, as a mount does.
 */
export async function checkService(
  machine: Machine,
  account: Account,
  options: { readonly insecure: boolean },
): Promise<readonly Finding[]> {
  const origin = new URL(account.origin);
  const named = await checkName(machine, origin);
  if (named !== null) return [named];

  let certificates: string | null;
  let transport: Transport;
  try {
    certificates = believedCertificates(machine.env, account.origin);
  } catch (error) {
    return [finding('certificate-file', messageOf(error))];
  }
  try {
    const { clock } = machine;
    const insecure = account.insecure === true || options.insecure;
    transport = new Transport({ baseUrl: account.origin, insecure, certificates, clock, userAgent: USER_AGENT });
  } catch (error) {
    if (error instanceof UsageError) return [finding('service-insecure', `${origin.origin} is not encrypted`)];
    return [finding('certificate-file', `SSL_CERT_FILE holds no certificates: ${messageOf(error)}`)];
  }

  const found: Finding[] = [];
  try {
    const asked = await checkAnswer(machine, transport, origin);
    if (asked.skew !== null) found.push(asked.skew);
    if (asked.failure !== null) return [...found, asked.failure];
  } finally {
    await transport.close();
  }
  const refused = await checkSignIn(machine, account, { ...options, certificates });
  return refused === null ? found : [...found, refused];
}

async function checkName(machine: Machine, origin: URL): Promise<Finding | null> {
  const { hostname } = origin;
  // An address needs no name server; behind a proxy it is the proxy that asks.
  if (/^[\d.]+$|^\[/.test(hostname) || usesProxy(machine, origin)) return null;
  const { lookupMs } = machine.limits;
  let cancel = (): void => {};
  const late = new Promise<'late'>((resolve) => {
    cancel = machine.clock.after(lookupMs, () => resolve('late'));
  });
  try {
    if ((await Promise.race([machine.lookup(hostname), late])) === 'late')
      return finding('dns-silent', `no name server said within ${lookupMs / 1000} s where ${hostname} is`);
    return null;
  } catch (error) {
    return finding('dns-failed', `the name ${hostname} is not known (${codeOf(error) || messageOf(error)})`);
  } finally {
    cancel();
  }
}

async function checkAnswer(
  machine: Machine,
  transport: Transport,
  origin: URL,
): Promise<{ readonly failure: Finding | null; readonly skew: Finding | null }> {
  const failed = (failure: Finding) => ({ failure, skew: null });
  try {
    const signal = AbortSignal.timeout(machine.limits.answerMs);
    const request = { method: 'GET', url: `${origin.origin}/user`, headers: {}, body: null, signal } as const;
    const answer = await transport.exchange(request);
    const { status, serverTimeMs } = answer;
    const skewMs = serverTimeMs === null ? 0 : machine.clock.nowMs() - serverTimeMs;
    await answer.discard();
    const skew = Math.abs(skewMs) <= SKEW_MS_MAX ? null : finding('clock-skew', skewSentence(skewMs));
    if (status < 500) return { failure: null, skew };
    const what = `${origin.origin} answers with status ${status}`;
    return { failure: finding('service-out-of-order', what), skew };
  } catch (error) {
    const what = `${origin.origin}: ${messageOf(error)}`;
    if (error instanceof ProtocolError) return failed(finding('service-foreign', what));
    const code = codeOf(error);
    const tls = origin.protocol === 'https:' && TLS_FINDINGS.find(([pattern]) => pattern.test(code));
    if (tls) return failed(finding(tls[1], what));
    if (isLate(error)) return failed(finding('service-silent', `${origin.origin} does not answer`));
    if (code === 'ECONNREFUSED' && isLoopback(origin.hostname)) return failed(finding('service-not-running', what));
    return failed(finding('service-refused', what));
  }
}

async function checkSignIn(
  machine: Machine,
  account: Account,
  how: { readonly insecure: boolean; readonly certificates: string | null },
): Promise<Finding | null> {
  const service = new HttpService({
    baseUrl: account.origin,
    insecure: account.insecure === true || how.insecure,
    certificates: how.certificates,
    userAgent: USER_AGENT,
    keys: account,
    refreshToken: account.refreshToken,
    clock: machine.clock,
    log: silentLogger,
  });
  try {
    await service.user(AbortSignal.timeout(machine.limits.signInMs));
    return null;
  } catch (error) {
    const what = `${account.origin}: ${messageOf(error)}`;
    if (error instanceof SignInError) return finding('sign-in-refused', what);
    if (error instanceof ApiError && (error.status === 401 || error.status === 403))
      return finding('token-refused', what);
    if (error instanceof ApiError && error.status >= 500) return finding('service-out-of-order', what);
    // Something answered, and not as the service does.
    if (error instanceof StrangeNetworkError || error instanceof ApiError || error instanceof ProtocolError)
      return finding('service-foreign', what);
    return finding('service-silent', `${account.origin} does not answer a sign-in: ${messageOf(error)}`);
  } finally {
    await service.close();
  }
}

function skewSentence(skewMs: number): string {
  const side = skewMs > 0 ? 'ahead of' : 'behind';
  return `the clock here is ${formatDuration(Math.abs(skewMs))} ${side} that of the service`;
}

function usesProxy(machine: Machine, origin: URL): boolean {
  const name = origin.protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY';
  return (machine.env[name] ?? machine.env[name.toLowerCase()] ?? '') !== '';
}

function isLate(error: unknown): boolean {
  return (error instanceof TransportError && error.timedOut) || (error as Error).name === 'TimeoutError';
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.');
}

function messageOf(error: unknown): string {
  return String(error instanceof Error ? error.message : error).split('\n', 1)[0] ?? '';
}

/** The innermost code: of the system, of TLS, of undici. */
function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return '';
  const inner = codeOf(error.cause) || (error instanceof AggregateError ? codeOf(error.errors[0]) : '');
  const { code } = error as { code?: unknown };
  return inner || (typeof code === 'string' ? code : '');
}
