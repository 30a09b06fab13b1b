import { ApiError, ProtocolError, SignInError, TransportError, UsageError } from '../../base/errors.ts';
import { silentLogger } from '../../base/log.ts';
import { isLoopback } from '../../base/proxy.ts';
import type { Options } from '../../config/options.ts';
import { formatDuration } from '../../config/units.ts';
import type { Account } from '../../mount/account-file.ts';
import { routeTo, type ServiceRoute } from '../../mount/service-route.ts';
import { certificateFaultOf } from '../../remote/certificate-failure.ts';
import { Transport } from '../../remote/http/transport.ts';
import { openService } from '../../remote/open-service.ts';
import { proxyFailureOf } from '../../remote/proxy-failure.ts';
import { StrangeNetworkError } from '../../remote/strange-network.ts';
import { type Finding, finding } from './finding.ts';
import type { Machine } from './machine.ts';

/** Tolerance: a Date header has whole seconds, and the response took time. */
const SKEW_MS_MAX = 60_000;
const USER_AGENT = 'cfs-mount';

/**
 * The way to the service, one step after the other: name, connection, certificate, clock, sign-in. The first failure is reported,
 * and later steps are skipped. The check changes nothing on the service; like a mount, it requests an access token.
 */
export async function checkService(
  machine: Machine,
  account: Account,
  options: Pick<Options, 'insecure' | 'proxy'>,
): Promise<readonly Finding[]> {
  const origin = new URL(account.origin);
  let route: ServiceRoute;
  try {
    route = routeTo(account.origin, { env: machine.env, options, known: account });
  } catch (error) {
    return [finding('proxy-address', messageOf(error))];
  }
  const named = await checkName(machine, origin, route);
  if (named !== null) return [named];

  let transport: Transport;
  try {
    if (origin.protocol === 'https:') route.certificates();
  } catch (error) {
    return [finding('certificate-file', messageOf(error))];
  }
  try {
    transport = new Transport({ baseUrl: account.origin, ...route, clock: machine.clock, userAgent: USER_AGENT });
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
  const refused = await checkSignIn(machine, account, route);
  return refused === null ? found : [...found, refused];
}

async function checkName(machine: Machine, origin: URL, route: ServiceRoute): Promise<Finding | null> {
  const { hostname } = origin;
  // An IP address needs no name server, and with a proxy the proxy resolves the name.
  if (/^[\d.]+$|^\[/.test(hostname) || route.proxy !== null) return null;
  const { lookupMs } = machine.limits;
  let cancel = (): void => {};
  const late = new Promise<'late'>((resolve) => {
    cancel = machine.clock.after(lookupMs, () => resolve('late'));
  });
  try {
    if ((await Promise.race([machine.lookup(hostname), late])) === 'late')
      return finding('dns-silent', `no name server resolved ${hostname} within ${lookupMs / 1000} s`);
    return null;
  } catch (error) {
    return finding('dns-failed', `the name ${hostname} does not resolve (${codeOf(error) || messageOf(error)})`);
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
    const proxy = proxyFailureOf(error);
    if (proxy !== null) return failed(finding('proxy-failed', proxy.message));
    const code = codeOf(error);
    const fault = certificateFaultOf(error) ?? (origin.protocol === 'https:' && code === 'EPROTO' ? 'broken' : null);
    if (fault !== null) return failed(finding(`tls-${fault}`, what));
    if (isLate(error)) return failed(finding('service-silent', `${origin.origin} does not answer`));
    if (code === 'ECONNREFUSED' && isLoopback(origin.hostname)) return failed(finding('service-not-running', what));
    return failed(finding('service-refused', what));
  }
}

async function checkSignIn(machine: Machine, account: Account, route: ServiceRoute): Promise<Finding | null> {
  const service = openService({
    baseUrl: account.origin,
    ...route,
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
    // The response is not one of the service.
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

function isLate(error: unknown): boolean {
  return (error instanceof TransportError && error.timedOut) || (error as Error).name === 'TimeoutError';
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
