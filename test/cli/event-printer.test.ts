import { spawnSync } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { EventPrinter } from '../../src/mount/event-printer.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

/** A pipe in place of a terminal that was stopped: it takes so much, and says EAGAIN. */

let directory: string;
let fd: number;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-events-'));
  spawnSync('mkfifo', [join(directory, 'pipe')]);
  fd = openSync(join(directory, 'pipe'), constants.O_RDWR | constants.O_NONBLOCK);
});

afterEach(() => {
  closeSync(fd);
  rmSync(directory, { recursive: true });
});

function read(): string {
  const buffer = Buffer.alloc(1024 ** 2);
  try {
    return buffer.toString('utf8', 0, readSync(fd, buffer));
  } catch {
    return ''; // EAGAIN: nothing is there
  }
}

test('what was printed while nobody read comes in its order, and what is too much is lost', () => {
  const clock = new ManualClock();
  const printer = new EventPrinter(clock, fd);
  const events = 20_000;
  for (let at = 0; at < events; at++) printer.print({ type: 'folder-created', path: String(at) });

  let seen = '';
  for (let part = read(); part !== ''; part = read()) {
    seen += part;
    clock.advance(1_000);
  }
  const numbers = [...seen.matchAll(/^created folder (\d+)$/gm)].map(([, number]) => Number(number));
  expect(seen.split('\n')).toHaveLength(numbers.length + 1);
  expect(numbers).toEqual(numbers.map((_, at) => at));
  expect(numbers.length).toBeGreaterThan(10_000);
  expect(numbers.length).toBeLessThan(events);

  printer.print({ type: 'folder-created', path: 'last' });
  expect(read()).toBe('created folder last\n');
});
