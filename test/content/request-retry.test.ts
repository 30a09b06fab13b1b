import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { ApiError, SignInError, TransportError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { RequestRetry } from '../../src/content/request-retry.ts';

/** Time that passes when somebody sleeps, and at no other moment. */
class SleepClock implements Clock {
  #nowMs = 1;
  readonly #timers = new Set<{ readonly dueMs: number; readonly callback: () => void }>();

  nowMs(): number {
    return this.#nowMs;
  }

  elapsedMs(): number {
    return this.#nowMs;
  }

  async sleep(ms: number): Promise<void> {
    this.pass(ms);
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { dueMs: this.#nowMs + ms, callback };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  random(): number {
    return 1;
  }

  pass(ms: number): void {
    this.#nowMs += ms;
    for (const timer of this.#timers) {
      if (timer.dueMs > this.#nowMs) continue;
      this.#timers.delete(timer);
      timer.callback();
    }
  }
}

function retryOf(clock: Clock, shutdown = new AbortController().signal, health = new ServiceHealth({ clock })) {
  return new RequestRetry({ health, clock, log: silentLogger, shutdown, readTimeoutMs: 30_000 });
}

const never = async (): Promise<never> => {
  throw new TransportError('no answer');
};

test('a question without an answer is asked again until --read-timeout is over, then it is ETIMEDOUT', async () => {
  const clock = new SleepClock();
  let asked = 0;

  await expect(
    retryOf(clock).ask(() => {
      asked++;
      return never();
    }),
  ).rejects.toMatchObject({ errno: 'ETIMEDOUT' });

  expect(asked).toBeGreaterThan(5);
  expect(clock.elapsedMs()).toBeGreaterThan(20_000);
  expect(clock.elapsedMs()).toBeLessThanOrEqual(30_001);
});

test('while the service is known to be away the next question fails within a second', async () => {
  const clock = new SleepClock();
  const reader = retryOf(clock);
  await expect(reader.ask(never)).rejects.toMatchObject({ errno: 'ETIMEDOUT' });
  const startedMs = clock.elapsedMs();

  await expect(reader.ask(never)).rejects.toMatchObject({ errno: 'ETIMEDOUT' });

  expect(clock.elapsedMs() - startedMs).toBeLessThanOrEqual(1_000);
});

test('a service that refuses connections is retried for ten seconds, or for one second if it is known to be unreachable', async () => {
  const clock = new SleepClock();
  const reader = retryOf(clock);
  let asked = 0;
  const refuses = async (): Promise<never> => {
    asked++;
    throw new TransportError('connect ECONNREFUSED', { neverSent: true });
  };

  await expect(reader.ask(refuses)).rejects.toMatchObject({ errno: 'ETIMEDOUT' });
  expect(asked).toBeGreaterThan(3);
  expect(clock.elapsedMs()).toBeGreaterThan(5_000);
  expect(clock.elapsedMs()).toBeLessThanOrEqual(10_001);

  const startedMs = clock.elapsedMs();
  await expect(reader.ask(refuses)).rejects.toMatchObject({ errno: 'ETIMEDOUT' });
  expect(clock.elapsedMs() - startedMs).toBeLessThanOrEqual(1_000);
});

test.each([
  ['does not answer a connection', new TransportError('connect timeout', { neverSent: true, timedOut: true })],
  ['cuts every connection', new TransportError('cut')],
])('a service that %s is waited for as long as --read-timeout says', async (_, failure) => {
  const clock = new SleepClock();

  await expect(
    retryOf(clock).ask(async () => {
      throw failure;
    }),
  ).rejects.toMatchObject({ errno: 'ETIMEDOUT' });

  expect(clock.elapsedMs()).toBeGreaterThan(20_000);
});

test('after one answer, or the news that the service is reachable, a request is retried for the whole time again', async () => {
  for (const comesBack of [
    (retry: RequestRetry, _health: ServiceHealth) => retry.ask(async () => 'here'),
    (_retry: RequestRetry, health: ServiceHealth) => health.reachable(),
  ]) {
    const clock = new SleepClock();
    const health = new ServiceHealth({ clock });
    const retry = retryOf(clock, undefined, health);
    await expect(retry.ask(never)).rejects.toMatchObject({ errno: 'ETIMEDOUT' });
    await comesBack(retry, health);
    const startedMs = clock.elapsedMs();

    await expect(retry.ask(never)).rejects.toMatchObject({ errno: 'ETIMEDOUT' });

    expect(clock.elapsedMs() - startedMs).toBeGreaterThan(20_000);
  }
});

test('a question that hangs is given up when the time is over', async () => {
  const clock = new SleepClock();
  const asked = retryOf(clock).ask(
    (signal) => new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  );
  clock.pass(30_000);

  await expect(asked).rejects.toMatchObject({ errno: 'ETIMEDOUT' });
});

test.each([
  [new ApiError(403, 'GET /file/1/data', 'no')],
  [new ApiError(404, 'GET /file/1/data', 'gone')],
  [new SignInError('sign in again')],
])('a refusal is not asked again: %s', async (refusal) => {
  let asked = 0;
  await expect(
    retryOf(new SleepClock()).ask(async () => {
      asked++;
      throw refusal;
    }),
  ).rejects.toBe(refusal);
  expect(asked).toBe(1);
});

test('a refusal, and then a question that the end of the time cuts short: the refusal is what is told', async () => {
  const clock = new SleepClock();
  const health = new ServiceHealth({ clock });
  let asked = 0;

  const answer = retryOf(clock, undefined, health).ask(async (signal) => {
    if (++asked < 3) throw new ApiError(503, 'GET /file/1/data', 'the service is busy');
    queueMicrotask(() => clock.pass(30_000));
    return new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  });

  await expect(answer).rejects.toMatchObject({ errno: 'EIO', message: 'the service is busy' });
  expect({ asked, hasTimedOut: health.hasTimedOut('reader') }).toEqual({ asked: 3, hasTimedOut: false });
});

test('a service that is busy is asked again after as long as it says', async () => {
  const clock = new SleepClock();
  let asked = 0;
  const answer = await retryOf(clock).ask(async () => {
    if (++asked === 1) throw new ApiError(503, 'GET /file/1/data', 'busy', { retryAfterMs: 7_000 });
    return 'here';
  });

  expect(answer).toBe('here');
  expect(clock.elapsedMs()).toBeGreaterThanOrEqual(7_000);
});

test('the end of the mount ends every question', async () => {
  const shutdown = new AbortController();
  const clock = new SleepClock();
  shutdown.abort(new Error('the mount is going away'));

  await expect(retryOf(clock, shutdown.signal).ask(never)).rejects.toThrow('the mount is going away');
});

test('a read waits as long as bytes arrive for any read; other requests do not', async () => {
  const clock = new SleepClock();
  const health = new ServiceHealth({ clock });
  const waiting = retryOf(clock, undefined, health);
  const ends: string[] = [];
  const hangs = (signal: AbortSignal): Promise<never> =>
    new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }));
  const ended = (what: string) => (error: { errno: string }) => void ends.push(`${what}: ${error.errno}`);
  const bytes = waiting.ask(hangs, undefined, () => 0).catch(ended('bytes'));
  const name = waiting.ask(hangs).catch(ended('name'));

  for (let n = 0; n < 10; n++) {
    clock.pass(20_000);
    health.bytesCame();
  }
  await name;
  expect(ends).toEqual(['name: ETIMEDOUT']);
  expect(health.hasTimedOut('reader')).toBe(true);
  health.bytesCame();
  expect(health.hasTimedOut('reader')).toBe(false);

  clock.pass(29_000);
  clock.pass(2_000);
  await bytes;
  expect(ends).toEqual(['name: ETIMEDOUT', 'bytes: ETIMEDOUT']);
});

test.each([
  ['refused', new ApiError(503, 'GET /file/1/data', 'busy'), 'EIO'],
  ['cut', new TransportError('the line was cut'), 'ETIMEDOUT'],
] as const)('a read that is %s repeatedly fails although other reads progress', async (_, failure, errno) => {
  const clock = new SleepClock();
  const health = new ServiceHealth({ clock });
  const reader = retryOf(clock, undefined, health);
  let landedTo = 0;
  let asked = 0;
  const answer = reader.ask(
    async () => {
      asked++;
      if (asked <= 3) landedTo = asked; // as long as it gets on itself its time begins anew
      clock.pass(20_000);
      health.bytesCame();
      throw failure;
    },
    undefined,
    () => landedTo,
  );

  await expect(answer).rejects.toMatchObject({ errno });
  expect(asked).toBe(5);
});

/** What a signal keeps: listeners, and (Node 20, for ever) an entry for each `AbortSignal.any` that was made of it. */
function keptBy(signal: AbortSignal): number {
  const symbol = Object.getOwnPropertySymbols(signal).find((each) => String(each) === 'Symbol(kDependantSignals)');
  const entries = symbol === undefined ? null : (signal as unknown as Record<symbol, Set<unknown> | null>)[symbol];
  return getEventListeners(signal, 'abort').length + (entries?.size ?? 0);
}

test('questions that were answered leave nothing with the signal that ends the mount', async () => {
  const shutdown = new AbortController().signal;
  const asked = retryOf(systemClock, shutdown);
  for (let n = 0; n < 100; n++) {
    await asked.ask(async () => 'an answer');
    await asked.ask(
      async () => 'bytes',
      new AbortController().signal,
      () => 0,
    );
    await asked.askBriefly(async () => 'an answer', 1_000);
  }
  expect(keptBy(shutdown)).toBe(0);
});
