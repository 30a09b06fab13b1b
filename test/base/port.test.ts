import { MessageChannel } from 'node:worker_threads';
import { afterEach, expect, test } from 'vitest';
import { ApiError, FsError, StorageError, TransportError } from '../../src/base/errors.ts';
import { Port } from '../../src/base/port.ts';

const channels: MessageChannel[] = [];

afterEach(() => {
  for (const { port1, port2 } of channels.splice(0)) {
    port1.close();
    port2.close();
  }
});

function pair(): { here: Port; there: Port } {
  const channel = new MessageChannel();
  channels.push(channel);
  return { here: new Port(channel.port1), there: new Port(channel.port2) };
}

interface Adder {
  add(a: number, b: number): Promise<number>;
  fail(what: string): Promise<void>;
  wait(signal: AbortSignal): Promise<void>;
  bytes(bytes: Uint8Array): Promise<Uint8Array>;
}

test('a call reaches the method on the other side and brings its result back', async () => {
  const { here, there } = pair();
  there.offer('adder', { add: async (a: number, b: number) => a + b });

  expect(await here.remote<Adder>('adder').add(2, 3)).toBe(5);
});

test('what a call tells while it lasts is heard in order and before its result, and by nobody afterwards', async () => {
  const { here, there } = pair();
  let tellLate: ((value: number) => void) | undefined;
  there.offer('counter', {
    count: async (to: number, tell: (value: number) => void, signal: AbortSignal) => {
      for (let at = 1; at <= to; at++) tell(at);
      tellLate = tell;
      return signal.aborted;
    },
  });
  const heard: number[] = [];
  const counter = here.remote<{
    count(to: number, tell: (value: number) => void, signal: AbortSignal): Promise<boolean>;
  }>('counter');

  expect(await counter.count(3, (value) => heard.push(value), new AbortController().signal)).toBe(false);
  expect(heard).toEqual([1, 2, 3]);
  tellLate?.(4);
  expect(await counter.count(0, () => {}, new AbortController().signal)).toBe(false); // the line is in order
  expect(heard).toEqual([1, 2, 3]);
});

test('calls may go in both directions at once', async () => {
  const { here, there } = pair();
  here.offer('base', { of: async () => 10 });
  there.offer('adder', { add: async (a: number) => a + (await there.remote<{ of(): Promise<number> }>('base').of()) });

  expect(await here.remote<{ add(a: number): Promise<number> }>('adder').add(1)).toBe(11);
});

test('an error arrives as the class that was thrown, with its fields', async () => {
  const { here, there } = pair();
  const errors: Record<string, Error> = {
    fs: new FsError('ESTALE', 'gone'),
    api: new ApiError(503, 'GET /user', 'busy', { retryAfterMs: 1500 }),
    transport: new TransportError('cut', { timedOut: true }),
    storage: new StorageError('no room', { full: true }),
  };
  there.offer('adder', {
    fail: async (what: string) => {
      throw errors[what];
    },
  });
  const adder = here.remote<Adder>('adder');

  await expect(adder.fail('fs')).rejects.toMatchObject({ name: 'FsError', errno: 'ESTALE', message: 'gone' });
  await expect(adder.fail('fs')).rejects.toBeInstanceOf(FsError);
  await expect(adder.fail('api')).rejects.toMatchObject({ status: 503, request: 'GET /user', retryAfterMs: 1500 });
  await expect(adder.fail('transport')).rejects.toMatchObject({ timedOut: true, neverSent: false });
  await expect(adder.fail('storage')).rejects.toMatchObject({ full: true });
});

test('an aborted call is refused at once here and aborts its signal there', async () => {
  const { here, there } = pair();
  let aborted: (() => void) | undefined;
  const seen = new Promise<void>((resolve) => {
    aborted = resolve;
  });
  there.offer('adder', {
    wait: (signal: AbortSignal) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          aborted?.();
          reject(signal.reason);
        });
      }),
  });
  const controller = new AbortController();
  const waiting = here.remote<Adder>('adder').wait(controller.signal);

  controller.abort(new FsError('EINTR'));

  await expect(waiting).rejects.toMatchObject({ errno: 'EINTR' });
  await seen;
});

test('an unknown service or method is an error, not a hang', async () => {
  const { here, there } = pair();
  there.offer('adder', {});

  await expect(here.remote<Adder>('adder').add(1, 2)).rejects.toThrow(/no adder\.add/);
  await expect(here.remote<Adder>('nobody').add(1, 2)).rejects.toThrow(/no nobody\.add/);
});

test('an argument that cannot be cloned refuses its call and leaves the port working', async () => {
  const { here, there } = pair();
  there.offer('adder', { add: async (a: number, b: number) => a + b });
  const adder = here.remote<Adder>('adder');

  await expect(adder.add((() => 1) as unknown as number, 2)).rejects.toThrow();
  expect(await adder.add(1, 1)).toBe(2);
});

test('closing fails the calls under way and those to come', async () => {
  const { here, there } = pair();
  there.offer('adder', { wait: () => new Promise(() => {}) });
  const adder = here.remote<Adder>('adder');
  const waiting = adder.wait(new AbortController().signal);

  here.close(new Error('the other thread is gone'));

  await expect(waiting).rejects.toThrow('the other thread is gone');
  await expect(adder.add(1, 2)).rejects.toThrow('the other thread is gone');
});

test('small bytes travel as a copy: the sender keeps its own', async () => {
  const { here, there } = pair();
  there.offer('adder', { bytes: async (bytes: Uint8Array) => bytes.map((byte) => byte + 1) });
  const sent = Uint8Array.of(1, 2, 3);

  expect(await here.remote<Adder>('adder').bytes(sent)).toEqual(Uint8Array.of(2, 3, 4));
  expect(sent).toEqual(Uint8Array.of(1, 2, 3));
});
