import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import type { EventRecord } from '../../src/control/event-model.ts';
import { EVENTS_MAX, EventStream } from '../../src/mount/event-stream.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

let directory: string;
let clock: ManualClock;
const file = (): string => join(directory, 'events.jsonl');

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-stream-'));
  clock = new ManualClock();
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

function opened(): EventStream {
  const stream = new EventStream({ clock, log: silentLogger });
  stream.open(file());
  return stream;
}

const made = (path: string) => ({ type: 'folder-created', path }) as const;
const pathsOf = (records: readonly EventRecord[]): string[] =>
  records.map(({ event }) => ('path' in event ? event.path : event.type));

/** [S-events-1] */
test('the history and its numbers continue in the next run', () => {
  const first = opened();
  first.publish(made('a'));
  first.publish(made('b'));
  first.close();

  const second = opened();
  second.publish(made('c'));
  expect(pathsOf(second.since(null))).toEqual(['a', 'b', 'c']);
  expect(second.since(null).map(({ seq }) => seq)).toEqual([1, 2, 3]);
  second.close();
});

/** [S-events-1] */
test('the history keeps the last 1,000 events, and its file stays short', () => {
  let stream = opened();
  for (let at = 1; at <= 5 * EVENTS_MAX; at++) {
    stream.publish(made(`${at}`));
    if (at % 700 === 0) {
      stream.close();
      stream = opened();
    }
  }
  stream.close();

  const kept = opened().since(null);
  expect(kept).toHaveLength(EVENTS_MAX);
  expect(pathsOf(kept).at(0)).toBe(`${4 * EVENTS_MAX + 1}`);
  expect(kept.at(-1)?.seq).toBe(5 * EVENTS_MAX);
  expect(readFileSync(file(), 'utf8').split('\n').length).toBeLessThanOrEqual(2 * EVENTS_MAX);
});

/** [S-events-1] */
test('a line that a dying process tore is skipped, and the next run continues after it', () => {
  const first = opened();
  first.publish(made('a'));
  first.close();
  appendFileSync(file(), '{"seq":2,"atMs":0,"eve');

  const second = opened();
  second.publish(made('b'));
  second.close();
  expect(pathsOf(opened().since(null))).toEqual(['a', 'b']);
});

test('the file of the history is readable by its owner only', () => {
  opened().close();
  expect(statSync(file()).mode & 0o777).toBe(0o600);
});

test('a reader that returns gets the events after the last one it saw, and all where its number is unknown', () => {
  const stream = opened();
  for (const path of ['a', 'b', 'c']) stream.publish(made(path));
  expect(pathsOf(stream.since(2))).toEqual(['c']);
  expect(pathsOf(stream.since(3))).toEqual([]);
  expect(pathsOf(stream.since(77))).toEqual(['a', 'b', 'c']);
  stream.close();
});

test('an event before the store is open reaches the subscribers once it is, with the time at which it happened', () => {
  const stream = new EventStream({ clock, log: silentLogger });
  const seen: EventRecord[] = [];
  stream.subscribe((record) => seen.push(record));
  stream.publish({ type: 'sign-in-needed' });
  const atMs = clock.nowMs();
  clock.advance(5_000);
  expect(seen).toEqual([]);
  stream.open(file());
  expect(seen).toEqual([{ seq: 1, atMs, event: { type: 'sign-in-needed' } }]);
  stream.close();
});

test('without a place for its file the stream passes events on and keeps them in memory', () => {
  mkdirSync(file());
  const stream = opened();
  const seen: EventRecord[] = [];
  stream.subscribe((record) => seen.push(record));
  stream.publish(made('a'));
  expect(pathsOf(seen)).toEqual(['a']);
  expect(pathsOf(stream.since(null))).toEqual(['a']);
  stream.close();
});
