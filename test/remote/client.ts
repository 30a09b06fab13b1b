import { type Clock, systemClock } from '../../src/base/clock.ts';
import type { SignInError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ServiceProxy } from '../../src/base/proxy.ts';
import { HttpService } from '../../src/remote/http/http-service.ts';
import { Receiver } from '../../src/remote/http/receiver.ts';
import type { Deadlines } from '../../src/remote/http/transport.ts';

/** A clock that does not wait, and keeps what it was asked to wait for. */
export class HastyClock implements Clock {
  readonly waitedMs: number[] = [];
  /** Added to both clocks: time that "passed". */
  aheadMs = 0;
  nowMs = () => systemClock.nowMs() + this.aheadMs;
  elapsedMs = () => systemClock.elapsedMs() + this.aheadMs;
  after = systemClock.after;
  random = () => 0.5;
  sleep = async (ms: number, signal?: AbortSignal): Promise<void> => {
    signal?.throwIfAborted();
    this.waitedMs.push(ms);
  };
}

/** Whether downloads without TLS go past V8 here: not without the addon, nor where the processor has nothing for checksums. */
export function hasReceiver(): boolean {
  const receiver = Receiver.open();
  receiver?.close();
  return receiver !== null;
}

export const KEYS = { application: '/sc/1/1_1', accessKeyId: 'AK', privateAccessKey: 'PK' };

/** A client with a refresh token; deadlines are long unless a test is about them. */
export function clientOf(
  baseUrl: string,
  options: {
    clock?: Clock;
    deadlines?: Partial<Deadlines>;
    refreshToken?: string | null;
    certificates?: () => string;
    proxy?: ServiceProxy;
    onSignInRequired?: (error: SignInError) => void;
    onSignedIn?: () => void;
  } = {},
): HttpService {
  return new HttpService({
    baseUrl,
    keys: KEYS,
    refreshToken: `${baseUrl}/app-authorization/R1`,
    clock: new HastyClock(),
    log: silentLogger,
    userAgent: 'cfs-mount/0.0.0 (test)',
    ...options,
  });
}
