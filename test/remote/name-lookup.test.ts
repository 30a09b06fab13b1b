import type { LookupAddress } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { TransportError } from '../../src/base/errors.ts';
import { NameLookup } from '../../src/remote/http/name-lookup.ts';
import { type Deadlines, Transport } from '../../src/remote/http/transport.ts';
import { ScriptedServer } from './scripted-server.ts';

/** getaddrinfo(3) whose answers come when the test says so. */
class HeldLookup {
  readonly questions: { name: string; answer: (...words: unknown[]) => void }[] = [];
  #isOpen = false;
  readonly ask: LookupFunction = (name, _options, answered) => {
    const answer = answered as (...words: unknown[]) => void;
    this.questions.push({ name, answer });
    if (this.#isOpen) answer(null, HERE);
  };

  /** Answers what was asked and what will be. */
  open(): void {
    this.#isOpen = true;
    for (const { answer } of this.questions) answer(null, HERE);
  }
}

const options = { family: 0, hints: 0, all: true };
const HERE: LookupAddress[] = [{ address: '127.0.0.1', family: 4 }];
const failure = Object.assign(new Error('getaddrinfo EAI_AGAIN'), { code: 'EAI_AGAIN' });

test('a name is asked for once at a time, and everybody gets the answer', () => {
  const held = new HeldLookup();
  const names = new NameLookup(held.ask);
  const answers: unknown[] = [];
  const look = (name: string, more = {}) =>
    names.lookup(name, { ...options, ...more }, (error, address) => answers.push([name, error ?? address]));

  for (let n = 0; n < 16; n++) look('service.test');
  look('other.test');
  look('service.test', { all: false });
  expect(held.questions.map(({ name }) => name)).toEqual(['service.test', 'other.test', 'service.test']);
  expect(answers).toEqual([]);

  held.questions[0]?.answer(null, HERE);
  expect(answers).toEqual(Array.from({ length: 16 }, () => ['service.test', HERE]));

  // What was answered is not kept: the next one asks again, and a failure is everybody's too.
  look('service.test');
  look('service.test');
  expect(held.questions.length).toBe(4);
  held.questions[3]?.answer(failure);
  expect(answers.slice(16)).toEqual([
    ['service.test', failure],
    ['service.test', failure],
  ]);
});

let server: ScriptedServer;
beforeEach(async () => {
  server = await ScriptedServer.start();
});
afterEach(() => server.close());

const through = (held: HeldLookup, deadlines: Partial<Deadlines> = {}) => {
  const baseUrl = `http://service.test:${new URL(server.baseUrl).port}`;
  const names = new NameLookup(held.ask);
  return new Transport({ baseUrl, insecure: true, names, deadlines, userAgent: 'test', clock: systemClock });
};

/** As many as there are connections: eight for documents, eight for data. */
const sixteen = (transport: Transport) =>
  Array.from({ length: 16 }, (_, n) => {
    const url = `${transport.origin}/${n}${n % 2 === 0 ? '/data' : ''}`;
    return transport.exchange({ method: 'GET', url, headers: {}, body: null, signal: undefined });
  });

test('sixteen connections wait for one lookup, and so do their next attempts', async () => {
  const held = new HeldLookup();
  const transport = through(held, { connectMs: 100 });

  for (const attempt of [1, 2]) {
    for (const outcome of await Promise.allSettled(sixteen(transport))) {
      expect(outcome.status, `attempt ${attempt}`).toBe('rejected');
      const { reason } = outcome as PromiseRejectedResult;
      expect(reason).toBeInstanceOf(TransportError);
      expect(reason).toMatchObject({ timedOut: true, neverSent: true });
    }
  }
  expect(held.questions.length).toBe(1);
  await transport.close();
});

test('what waited for a name goes on when it is found', async () => {
  const held = new HeldLookup();
  const transport = through(held);
  const answers = sixteen(transport);
  await expect.poll(() => held.questions.length, { timeout: 30_000 }).toBe(1);

  held.open();
  for (const answer of await Promise.all(answers)) {
    expect(answer.status).toBe(404);
    await answer.discard();
  }
  await transport.close();
});
