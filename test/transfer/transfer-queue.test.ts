import { setMaxListeners } from 'node:events';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { type TransferKind, TransferQueue } from '../../src/transfer/transfer-queue.ts';

/** A queue whose transfers end when told to, and the order in which they began. */
function queueOf(bytesTotal = 1024 * 1024, options: { readonly uploads?: number; readonly transfers?: number } = {}) {
  const queue = new TransferQueue({ clock: systemClock, ...options });
  const { signal } = new AbortController();
  setMaxListeners(0, signal); // in life each transfer has its own
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const run = (kind: TransferKind, url: string, from: AbortSignal = signal) =>
    queue.run({ kind, url, bytesTotal }, from, () => {
      begun.push(url);
      return new Promise<void>((resolve) => ends.set(url, resolve));
    });
  const end = async (url: string) => {
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    await turn();
    ends.get(url)?.();
    await turn();
  };
  return { queue, begun, run, end };
}

test('a place that becomes free goes to a download before an upload that waited longer', async () => {
  const { begun, run, end } = queueOf();
  for (let i = 0; i < 5; i++) void run('upload', `u${i}`);
  for (let i = 0; i < 3; i++) void run('download', `d${i}`);
  void run('upload', 'late upload');
  void run('download', 'late download');
  await end('u0');

  expect(begun.slice(8)).toEqual(['late download']);
  await end('d0');
  expect(begun.slice(9)).toEqual(['late upload']);
});

test('a single place is used by both kinds in turn, however many wait', async () => {
  const { begun, run, end } = queueOf(undefined, { transfers: 1 });
  for (let i = 0; i < 3; i++) void run('upload', `u${i}`);
  for (let i = 0; i < 3; i++) void run('download', `d${i}`);
  for (const url of ['u0', 'd0', 'u1', 'd1', 'u2']) await end(url);

  expect(begun).toEqual(['u0', 'd0', 'u1', 'd1', 'u2', 'd2']);
});

test('a requested read goes before read-ahead', async () => {
  const { queue, begun, run, end } = queueOf();
  for (let i = 0; i < 8; i++) void run('download', `d${i}`);
  const ahead = { kind: 'download', url: 'ahead', bytesTotal: 1, isAhead: true } as const;
  void queue.run(ahead, new AbortController().signal, async () => void begun.push('ahead'));
  void run('download', 'waited for');
  await end('d0');
  expect(begun.slice(8)).toEqual(['waited for']);
  await end('d1');
  expect(begun.slice(9)).toEqual(['ahead']);
});

test('the last two places are not for uploads, however many wait', async () => {
  const { queue, begun, run } = queueOf();
  for (let i = 0; i < 20; i++) void run('upload', `u${i}`);
  await Promise.resolve();

  expect(queue.running).toHaveLength(6);
  expect(queue.waiting).toBe(14);
  void run('download', 'd0');
  await Promise.resolve();
  expect(begun.at(-1)).toBe('d0');
});

test('small uploads leave only the last place free', async () => {
  const { queue, begun, run } = queueOf(20 * 1024);
  for (let i = 0; i < 20; i++) void run('upload', `u${i}`);
  await Promise.resolve();

  expect(queue.running).toHaveLength(7);
  void run('download', 'd0');
  await Promise.resolve();
  expect(begun.at(-1)).toBe('d0');
});

test.each([
  ['small', 1],
  ['large', 1024 * 1024],
])('no more than %s uploads run, whatever is free', async (_what, bytesTotal) => {
  const { queue, run } = queueOf(bytesTotal, { uploads: 2 });
  for (let i = 0; i < 20; i++) void run('upload', `u${i}`);
  await Promise.resolve();

  expect(queue.running).toHaveLength(2);
});

test('a transfer that is aborted while it waits takes no place', async () => {
  const { queue, begun, run, end } = queueOf();
  for (let i = 0; i < 8; i++) void run('download', `d${i}`);
  const controller = new AbortController();
  const waiting = run('download', 'impatient', controller.signal);
  void run('download', 'patient');
  controller.abort(new DOMException('enough', 'AbortError'));

  await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
  await end('d0');

  expect(begun).not.toContain('impatient');
  expect(begun).toContain('patient');
  expect(queue.waiting).toBe(0);
});

test('a failed transfer releases its place', async () => {
  const { queue } = queueOf();
  const { signal } = new AbortController();
  setMaxListeners(0, signal);
  const failing = () =>
    queue.run({ kind: 'upload', url: 'u', bytesTotal: 1 }, signal, () => Promise.reject(new Error('no')));

  const ends = await Promise.allSettled(Array.from({ length: 30 }, failing));

  expect(ends.every(({ status }) => status === 'rejected')).toBe(true);
  expect(queue.running).toEqual([]);
});

test('moved bytes are counted for each transfer and in total', async () => {
  const { queue } = queueOf();
  const { signal } = new AbortController();

  await queue.run({ kind: 'download', url: 'd', bytesTotal: 10 }, signal, async (meter) => {
    meter.moved(4);
    meter.expects(20);
    expect(queue.running).toMatchObject([{ kind: 'download', url: 'd', bytesDone: 4, bytesTotal: 20 }]);
    meter.moved(16);
  });

  expect(queue.bytesMoved).toEqual({ downloaded: 20, uploaded: 0 });
  expect(queue.running).toEqual([]);
});

test('an upload does not wait for the end of a long read-ahead', async () => {
  const { queue, begun, end } = queueOf();
  const signal = (): AbortSignal => new AbortController().signal;
  // A reader of a long file: as many requests under way as may be, and two that wait, for as long as it lasts (`ReadAhead`).
  const ends: (() => void)[] = [];
  let fetched = 0;
  const fetchAhead = async (): Promise<void> => {
    await queue.run({ kind: 'download', url: 'd', bytesTotal: 1e6, isAhead: true }, signal(), () => {
      fetched++;
      return new Promise<void>((resolve) => ends.push(resolve));
    });
    if (fetched < 500) await fetchAhead();
  };
  const fetching = Array.from({ length: 10 }, fetchAhead);
  const pushed = queue.run({ kind: 'upload', url: 'u', bytesTotal: 1000 }, signal(), async () => void begun.push('u'));
  for (let turn = 0; turn < 100 && begun.length === 0; turn++) {
    ends.shift()?.();
    await end('');
  }
  expect(begun).toEqual(['u']);
  expect(fetched).toBeLessThan(20);
  while (fetched < 500 || ends.length > 0) {
    for (const over of ends.splice(0)) over();
    await end('');
  }
  await Promise.all([...fetching, pushed]);
});

test('a long upload does not wait behind small ones', async () => {
  const { queue, begun, end } = queueOf();
  const signal = (): AbortSignal => new AbortController().signal;
  // A folder of thousands of small files: whenever one is there the next one comes, and more wait than have a place.
  const ends: (() => void)[] = [];
  let sent = 0;
  const send = async (): Promise<void> => {
    await queue.run({ kind: 'upload', url: 's', bytesTotal: 1000 }, signal(), () => {
      sent++;
      return new Promise<void>((resolve) => ends.push(resolve));
    });
    if (sent < 500) await send();
  };
  const sending = Array.from({ length: 14 }, send);
  const pushed = queue.run({ kind: 'upload', url: 'u', bytesTotal: 1e9 }, signal(), async () => void begun.push('u'));
  for (let turn = 0; turn < 100 && begun.length === 0; turn++) {
    ends.shift()?.();
    await end('');
  }
  expect(begun).toEqual(['u']);
  expect(sent).toBeLessThan(30);
  while (sent < 500 || ends.length > 0) {
    for (const over of ends.splice(0)) over();
    await end('');
  }
  await Promise.all([...sending, pushed]);
});
