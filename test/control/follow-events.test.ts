import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { NoMountError } from '../../src/control/client.ts';
import type { EventRecord } from '../../src/control/event-model.ts';
import { followEvents } from '../../src/control/follow-events.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';

/** A mount with a history of events, whose `watch` behaves as that of a mount. */
class EventMount {
  readonly socketPath: string;
  readonly #records: EventRecord[] = [];
  readonly #listeners = new Set<(record: EventRecord) => void>();
  readonly #server: ControlServer;
  calls = 0;

  constructor(directory: string) {
    this.socketPath = join(directory, 'control.sock');
    const watch: ControlHandlers['watch'] = async ({ since, follow }, { signal, progress }) => {
      this.calls += 1;
      for (const record of this.#records.filter(({ seq }) => seq > (since ?? 0)))
        progress({ type: 'event', ...record });
      const listener = (record: EventRecord): void => progress({ type: 'event', ...record });
      if (follow) {
        this.#listeners.add(listener);
        await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
        this.#listeners.delete(listener);
      }
      return { seq: this.#records.length };
    };
    this.#server = new ControlServer({
      socketPath: this.socketPath,
      handlers: { watch } as ControlHandlers,
      clock: systemClock,
      log: silentLogger,
    });
  }

  listen = (): Promise<void> => this.#server.listen();
  close = (): Promise<void> => this.#server.close();

  get listeners(): number {
    return this.#listeners.size;
  }

  happen(count = 1): void {
    for (let n = 0; n < count; n += 1) {
      const record: EventRecord = { seq: this.#records.length + 1, atMs: 0, event: { type: 'resumed' } };
      this.#records.push(record);
      for (const listener of this.#listeners) listener(record);
    }
  }
}

let directory: string;
let mount: EventMount;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-events-'));
  mount = new EventMount(directory);
  await mount.listen();
});

afterEach(async () => {
  await mount.close();
  rmSync(directory, { recursive: true });
});

const seqsOf = (records: readonly EventRecord[]) => records.map(({ seq }) => seq);
const upTo = (last: number) => Array.from({ length: last }, (_, at) => at + 1);

/** Takes `count` events, with a pause after the first. */
async function take(events: AsyncIterable<EventRecord>, count: number, pause = async () => {}): Promise<EventRecord[]> {
  const taken: EventRecord[] = [];
  for await (const record of events) {
    if (taken.push(record) === count) break;
    if (taken.length === 1) await pause();
  }
  return taken;
}

test('the history after a number comes first, then each new event, and leaving the loop closes the connection', async () => {
  mount.happen(3);
  const taken = await take(followEvents(mount.socketPath, { since: 1 }), 4, async () => mount.happen(2));

  expect(seqsOf(taken)).toEqual([2, 3, 4, 5]);
  await expect.poll(() => mount.listeners).toBe(0);
});

test('without a number only new events come', async () => {
  mount.happen(3);
  const events = followEvents(mount.socketPath);
  const first = events.next();
  await expect.poll(() => mount.listeners).toBe(1);
  mount.happen();

  expect((await first).value?.seq).toBe(4);
  await events.return();
});

test('a caller that is 900 events behind gets each of them once', async () => {
  mount.happen();
  const taken = await take(followEvents(mount.socketPath, { since: null }), 901, async () => {
    await expect.poll(() => mount.listeners).toBe(1);
    mount.happen(900);
    // The connection is given up while nothing is taken.
    await expect.poll(() => mount.listeners).toBe(0);
  });

  expect(seqsOf(taken)).toEqual(upTo(901));
  expect(mount.calls).toBeGreaterThan(1);
});

test('the iteration ends with the mount, after its last event', async () => {
  mount.happen();
  const taken = await take(followEvents(mount.socketPath, { since: null }), 9, async () => {
    await expect.poll(() => mount.listeners).toBe(1);
    mount.happen();
    await mount.close();
  });

  expect(seqsOf(taken)).toEqual([1, 2]);
});

test('the iteration ends when its signal is aborted', async () => {
  mount.happen();
  const ending = new AbortController();
  const events = followEvents(mount.socketPath, { since: null, signal: ending.signal });

  expect(seqsOf(await take(events, 9, async () => ending.abort()))).toEqual([1]);
});

test('where no mount answers, the first step rejects', async () => {
  await mount.close();

  await expect(followEvents(mount.socketPath).next()).rejects.toThrow(NoMountError);
  await expect(followEvents(mount.socketPath, { since: null }).next()).rejects.toThrow(NoMountError);
});
