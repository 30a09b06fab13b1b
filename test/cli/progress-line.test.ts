import { expect, test } from 'vitest';
import { ProgressLine, paceOf, progressBar, progressText } from '../../src/cli/commands/progress-line.ts';
import type { SyncProgress } from '../../src/control/status-model.ts';
import { progressOf, withProgress } from '../../src/mount/sync-progress.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

/** What a person sees while a push of many lasts: pure functions from where it stands to a line. */

const MIB = 1024 ** 2;
const HALF: SyncProgress = {
  doneChanges: 3,
  totalChanges: 10,
  doneBytes: 4 * MIB,
  totalBytes: 8 * MIB,
  waitsFor: null,
};

test('the bar is that of the bytes, or of the changes where none has any', () => {
  expect(progressBar(HALF)).toBe('[##########----------]');
  expect(progressBar({ doneChanges: 1, totalChanges: 4, doneBytes: 0, totalBytes: 0 })).toBe('[#####---------------]');
  expect(progressBar({ doneChanges: 0, totalChanges: 0, doneBytes: 0, totalBytes: 0 })).toBe('[####################]');
  expect(progressBar({ doneChanges: 9, totalChanges: 4, doneBytes: 9, totalBytes: 4 })).toBe('[####################]');
});

test('rate and time left come from the last seconds, and are left out while nothing has moved', () => {
  const samples = [
    { atMs: 1_000, doneBytes: 2 * MIB },
    { atMs: 3_000, doneBytes: 4 * MIB },
  ];

  expect(paceOf(samples, HALF)).toEqual({ bytesPerSecond: MIB, leftMs: 4_000 });
  expect(progressText(HALF, paceOf(samples, HALF))).toBe('3 of 10 changes, 4 MiB of 8 MiB, 1 MiB/s, 4 s left');
  expect(paceOf(samples.slice(0, 1), HALF)).toEqual({ bytesPerSecond: null, leftMs: null });
  expect(progressText(HALF)).toBe('3 of 10 changes, 4 MiB of 8 MiB');
});

test('the longest line fits 80 columns', () => {
  const progress = { doneChanges: 99_999, totalChanges: 100_000, doneBytes: 1023 * MIB, totalBytes: 1023 * MIB * 1023 };
  const line = `${progressBar(progress)} ${progressText(progress, { bytesPerSecond: 1023 * MIB, leftMs: 119_000 })}`;

  expect(line.length).toBeLessThan(100);
});

test('at a terminal each line replaces the last one; elsewhere a plain line comes now and then', () => {
  const clock = new ManualClock();
  const [drawn, warned] = [[] as string[], [] as string[]];
  const terminal = new ProgressLine({
    clock,
    output: { print: () => {}, warn: () => {}, redraw: (text) => void drawn.push(text) },
    hint: '',
  });
  const plain = new ProgressLine({
    clock,
    output: { print: () => {}, warn: (text) => void warned.push(text), redraw: null },
    hint: '',
  });

  for (let second = 0; second < 11; second++) {
    for (const line of [terminal, plain]) line.show({ ...HALF, doneBytes: second * 10_240 });
    clock.advance(1_000);
  }
  terminal.end();
  plain.end();

  expect(drawn).toHaveLength(12);
  expect(drawn.at(-2)).toBe('[--------------------] 3 of 10 changes, 100 KiB of 8 MiB, 10 KiB/s, 13 min left');
  expect(drawn.at(-1)).toBe('');
  expect(warned).toEqual([
    '3 of 10 changes, 50 KiB of 8 MiB, 10 KiB/s, 14 min left\n',
    '3 of 10 changes, 100 KiB of 8 MiB, 10 KiB/s, 13 min left\n',
  ]);
});

test('why nothing moves is said each time the service goes away, with what can be done', () => {
  const [drawn, warned] = [[] as string[], [] as string[]];
  const output = { print: () => {}, warn: (text: string) => void warned.push(text), redraw: null };
  const line = new ProgressLine({ clock: new ManualClock(), output, hint: 'Ctrl-C ends the wait' });
  const atTerminal = new ProgressLine({
    clock: new ManualClock(),
    output: { ...output, warn: (text) => void drawn.push(`${text}`), redraw: (text) => void drawn.push(text) },
    hint: 'Ctrl-C ends the wait',
  });
  const silent = new ProgressLine({ clock: new ManualClock(), output, hint: null });
  const away = { ...HALF, waitsFor: 'the service does not answer' };

  for (const progress of [HALF, away, away, HALF, away]) line.show(progress);
  for (const progress of [away, away]) atTerminal.show(progress);
  silent.show(away);

  const said = 'the service does not answer: waiting; Ctrl-C ends the wait\n';
  const bar = '[##########----------] 3 of 10 changes, 4 MiB of 8 MiB';
  expect(warned).toEqual([said, said]);
  expect(drawn).toEqual(['', said, bar, bar]);
});

test('what the uploads under way have moved counts, and never more than there is', () => {
  const total = { changes: 4, bytes: 100 };

  expect(progressOf(total, { changes: 4, bytes: 100 }, 30)).toEqual({
    doneChanges: 0,
    totalChanges: 4,
    doneBytes: 30,
    totalBytes: 100,
  });
  expect(progressOf(total, { changes: 1, bytes: 40 }, 0)).toMatchObject({ doneChanges: 3, doneBytes: 60 });
  expect(progressOf(total, { changes: 1, bytes: 40 }, 900)).toMatchObject({ doneBytes: 100 });
  // The file grew while it was pushed.
  expect(progressOf(total, { changes: 4, bytes: 160 }, 0)).toMatchObject({ doneBytes: 0, totalBytes: 160 });
});

test('progress is told until the work ends, and its outcome or failure is passed on', async () => {
  const clock = new ManualClock();
  const told: number[] = [];
  const reasons = new Set<string | null>();
  const waitsFor = (): string => 'the line is down';
  let left = 3;
  let finish = (): void => {};
  const work = (): Promise<string> =>
    new Promise((resolve) => {
      finish = () => resolve('pushed');
    });
  const report = (progress: SyncProgress): void => {
    told.push(progress.doneChanges);
    reasons.add(progress.waitsFor);
  };

  const outcome = withProgress(
    { clock, left: async () => ({ changes: left, bytes: 0 }), underWayBytes: () => 0, waitsFor, report },
    work,
  );
  for (; left > 0; left--) {
    await settled();
    clock.advance(left === 3 ? 0 : 250);
  }
  await settled();
  clock.advance(250);
  await settled();
  finish();

  expect(await outcome).toBe('pushed');
  expect(told).toEqual([0, 1, 2, 3]);
  expect([...reasons]).toEqual(['the line is down']);
  clock.advance(10_000);
  await settled();
  expect(told).toHaveLength(4);
  const gone = { clock, left: () => Promise.reject(new Error('gone')), underWayBytes: () => 0, waitsFor, report };
  await expect(withProgress(gone, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
});

/** Promises that are ready have run. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
