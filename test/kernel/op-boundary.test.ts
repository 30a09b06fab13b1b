import { expect, test } from 'vitest';
import { FsError, TransportError } from '../../src/base/errors.ts';
import { createLogger } from '../../src/base/log.ts';
import type { CallerState } from '../../src/kernel/caller-signals.ts';
import { OpBoundary, type OpName, type PendingOp } from '../../src/kernel/op-boundary.ts';
import { ManualClock } from './manual-clock.ts';

function setUp(bytesCameMs?: () => number) {
  const clock = new ManualClock();
  const lines: { level: number; op: string; errno: string; msg: string; ino?: number }[] = [];
  const log = createLogger({ level: 'debug', destination: { write: (line: string) => lines.push(JSON.parse(line)) } });
  return { clock, lines, boundary: new OpBoundary({ log, clock, deadlineMs: 10_000, bytesCameMs }) };
}

/** A pending operation and what became of it. */
function pendingOp(boundary: OpBoundary, op: OpName, startedMs: number) {
  const happened: string[] = [];
  const pending: PendingOp = {
    op,
    startedMs,
    abort: (reason) => happened.push(`abort ${reason.name}`),
    fields: () => ({ ino: 7 }),
  };
  let resolve!: (value: string) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<string>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  boundary.watch(pending, promise, {
    answered: (value) => happened.push(`answered ${value}`),
    refused: (error) => happened.push(`refused ${error.errno}`),
    late: (value) => happened.push(`late ${value}`),
  });
  return { pending, happened, resolve, reject };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test('a failure becomes one line and one errno, quiet where refusals are ordinary', () => {
  const { boundary, lines, clock } = setUp();

  const quiet = boundary.failed('lookup', new FsError('ENOENT'), clock.elapsedMs(), { ino: 1 });
  const loud = boundary.failed('read', new TransportError('no line'), clock.elapsedMs(), { ino: 2 });
  const bug = boundary.failed('write', new TypeError('undefined is not a function'), clock.elapsedMs(), { ino: 3 });

  expect([quiet.errno, loud.errno, bug.errno]).toEqual(['ENOENT', 'ETIMEDOUT', 'EIO']);
  expect(lines.map(({ level, op, errno }) => [level, op, errno])).toEqual([
    [20, 'lookup', 'ENOENT'],
    [40, 'read', 'ETIMEDOUT'],
    [40, 'write', 'EIO'],
  ]);
});

test('operations are counted by how long they took', () => {
  const { boundary, clock } = setUp();
  const startedMs = clock.elapsedMs();
  boundary.succeeded('getattr', startedMs);
  clock.advance(1);
  boundary.failed('getattr', new FsError('ESTALE'), startedMs, {});

  const metrics = boundary.metrics().get('getattr');

  expect(metrics).toMatchObject({ operations: 2, failures: 1 });
  expect(metrics?.latencyLog2Us[0]).toBe(1); // under a microsecond
  expect(metrics?.latencyLog2Us[10]).toBe(1); // 512 to 1023 µs and 1000 is among them
});

test('an answer that comes in time is given, once', async () => {
  const { boundary, clock } = setUp();
  const { happened, resolve } = pendingOp(boundary, 'read', clock.elapsedMs());

  resolve('bytes');
  await settled();
  clock.advance(60_000);

  expect(happened).toEqual(['answered bytes']);
  expect(boundary.pendingCount).toBe(0);
  expect(clock.timers).toBe(0);
});

test('what takes too long is refused at its deadline, and its answer is late', async () => {
  const { boundary, clock } = setUp();
  const { happened, resolve } = pendingOp(boundary, 'lookup', clock.elapsedMs());

  clock.advance(9000);
  expect(happened).toEqual([]);
  clock.advance(2500);
  expect(happened).toEqual(['abort TimeoutError', 'refused ETIMEDOUT']);
  resolve('entry');
  await settled();

  expect(happened).toEqual(['abort TimeoutError', 'refused ETIMEDOUT', 'late entry']);
});

/** [S-read-3] */
test('a read is waited for as long as bytes come, and nothing else is', () => {
  let cameMs = 0;
  const { boundary, clock } = setUp(() => cameMs);
  const read = pendingOp(boundary, 'read', clock.elapsedMs());
  const lookup = pendingOp(boundary, 'lookup', clock.elapsedMs());

  for (let n = 0; n < 10; n++) {
    clock.advance(9_000);
    cameMs = clock.elapsedMs();
  }
  expect([read.happened, lookup.happened]).toEqual([[], ['abort TimeoutError', 'refused ETIMEDOUT']]);
  clock.advance(11_500);

  expect(read.happened).toEqual(['abort TimeoutError', 'refused ETIMEDOUT']);
});

test('what waits for a local disk has no deadline: its answer is the truth about durability', async () => {
  const { boundary, clock } = setUp();
  const fsync = pendingOp(boundary, 'fsync', clock.elapsedMs());
  const flush = pendingOp(boundary, 'flush', clock.elapsedMs());
  const read = pendingOp(boundary, 'read', clock.elapsedMs());

  clock.advance(120_000);
  fsync.resolve('synced');
  flush.reject(new FsError('ENOSPC'));
  await settled();

  expect(fsync.happened).toEqual(['answered synced']);
  expect(flush.happened).toEqual(['refused ENOSPC']);
  expect(read.happened).toEqual(['abort TimeoutError', 'refused ETIMEDOUT']);
});

test('a caller that is being killed is answered at once; one that may want to stop when the file system is ready', async () => {
  const { boundary, clock } = setUp();
  const killed = pendingOp(boundary, 'read', clock.elapsedMs());
  const asked = pendingOp(boundary, 'read', clock.elapsedMs());

  boundary.interrupt(killed.pending, () => 'killed');
  boundary.interrupt(asked.pending, () => 'asked');

  expect(killed.happened).toEqual(['abort AbortError', 'refused EINTR']);
  expect(asked.happened).toEqual(['abort AbortError']);
  asked.resolve('bytes');
  await settled();
  expect(asked.happened).toEqual(['abort AbortError', 'answered bytes']);
});

test('a signal that means nothing interrupts nothing, but the caller is looked at again', () => {
  const { boundary, clock } = setUp();
  const { happened, pending } = pendingOp(boundary, 'read', clock.elapsedMs());
  let state: CallerState = 'idle';
  boundary.interrupt(pending, () => state);
  expect(happened).toEqual([]);

  state = 'killed';
  clock.advance(150);

  expect(happened).toEqual(['abort AbortError', 'refused EINTR']);
});

test('signals that keep coming put off nobody’s deadline', () => {
  const { boundary, clock } = setUp();
  const waiting = pendingOp(boundary, 'read', clock.elapsedMs());

  for (let passedMs = 0; passedMs < 12_000; passedMs += 50) {
    clock.advance(50);
    const signalled = pendingOp(boundary, 'read', clock.elapsedMs());
    boundary.interrupt(signalled.pending, () => 'idle');
  }

  expect(waiting.happened).toEqual(['abort TimeoutError', 'refused ETIMEDOUT']);
});

test('after the end nothing is answered any more', async () => {
  const { boundary, clock } = setUp();
  const { happened, resolve } = pendingOp(boundary, 'read', clock.elapsedMs());

  boundary.close();
  resolve('bytes');
  await settled();

  expect(happened).toEqual(['abort AbortError']);
  expect(clock.timers).toBe(0);
});
