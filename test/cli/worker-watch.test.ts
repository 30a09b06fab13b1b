import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { WorkerWatch } from '../../src/mount/worker-watch.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

const MOUNT = { directory: '/somewhere', device: '0:42', descriptor: 42 };

function watched() {
  const clock = new ManualClock();
  const worker = new EventEmitter();
  const said: string[] = [];
  const watch = new WorkerWatch({
    worker,
    clock,
    log: silentLogger,
    abandon: ({ descriptor }) => said.push(`abandon ${descriptor}`),
    onDeath: (error, isStuck) => said.push(`${isStuck ? 'stuck' : 'dead'}: ${error.message}`),
  });
  return { clock, worker, watch, said };
}

test('a Worker that ends takes its mount with it, once', () => {
  const { clock, worker, watch, said } = watched();
  watch.mounted(MOUNT);

  worker.emit('exit', 1);
  clock.advance(600_000);

  expect(said).toEqual(['abandon 42', 'dead: the worker ended with 1']);
  expect(clock.timers).toBe(0);
});

test('after an exception the mount is given up at once, and a thread that then ends is not stuck', () => {
  const { clock, worker, watch, said } = watched();
  watch.mounted(MOUNT);

  worker.emit('error', new Error('boom'));
  expect(said).toEqual(['abandon 42']);
  clock.advance(100);
  worker.emit('exit', 1);
  clock.advance(10_000);

  expect(said).toEqual(['abandon 42', 'dead: the worker ended with 1']);
});

test('after an exception a thread that does not end is stuck within half a second', () => {
  const { clock, worker, watch, said } = watched();
  watch.mounted(MOUNT);

  worker.emit('error', new Error('boom'));
  clock.advance(500);

  expect(said).toEqual(['abandon 42', 'stuck: boom']);
});

test('a Worker that works hard for fifty seconds keeps its mount; one that is silent for sixty does not', () => {
  const { clock, watch, said } = watched();
  watch.mounted(MOUNT);
  clock.advance(50_000);
  watch.heard();
  clock.advance(59_500);
  expect(said).toEqual([]);

  clock.advance(500);

  expect(said).toEqual(['abandon 42', 'stuck: the worker did not answer for 60 s']);
});

test('a process that was stopped for an hour does not take its mount for dead', () => {
  const { clock, watch, said } = watched();
  watch.mounted(MOUNT);

  clock.jump(3_600_000);
  watch.heard();
  clock.advance(30_000);

  expect(said).toEqual([]);
});

test('a Worker that dies before there is a mount is told of, and one that ends in order is not', () => {
  const early = watched();
  early.worker.emit('exit', 7);
  expect(early.said).toEqual(['dead: the worker ended with 7']);

  const orderly = watched();
  orderly.watch.mounted(MOUNT);
  orderly.watch.stop();
  orderly.worker.emit('exit', 0);
  expect(orderly.said).toEqual([]);
  expect(orderly.clock.timers).toBe(0);
});
