import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import type { WatchMessage } from '../../src/control/event-model.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';
import type { LiveMessage } from '../../src/web/live-model.ts';
import { LiveMounts } from '../../src/web/live-mounts.ts';
import { CommandHome } from '../cli/cli-harness.ts';
import { idleStatus } from '../control/idle-status.ts';
import { until } from './page-program.ts';

/** What an open page gets of the mounts, over real control sockets. */

let home: CommandHome;
let control: ControlServer | null;
/** The `watch` calls that are under way, with the number that each began after. */
const watching = new Map<(message: WatchMessage) => void, number | null>();
let live: LiveMounts;

beforeEach(() => {
  home = new CommandHome();
  watching.clear();
  live = new LiveMounts({ paths: pathsOf(home.env), clock: systemClock });
});

afterEach(async () => {
  await control?.close();
  control = null;
  home.dispose();
});

async function startMount(name: string): Promise<void> {
  const { socketPath } = accountPaths(pathsOf(home.env), name);
  mkdirSync(join(socketPath, '..'), { recursive: true, mode: 0o700 });
  const handlers = {
    watch: async ({ since }, { signal, progress }) => {
      watching.set(progress, since);
      progress({ type: 'status', changed: idleStatus() });
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
      watching.delete(progress);
      return { seq: 0 };
    },
    metrics: () => ({ bytes: { pushed: 7, fetched: 9 } }) as never,
  } as Partial<ControlHandlers> as ControlHandlers;
  control = new ControlServer({ socketPath, handlers, clock: systemClock, log: silentLogger });
  await control.listen();
}

interface OpenPage {
  readonly messages: LiveMessage[];
  close(): Promise<void>;
}

function openPage(): OpenPage {
  const messages: LiveMessage[] = [];
  const end = new AbortController();
  const followed = live.follow((message) => messages.push(message), end.signal);
  return {
    messages,
    close: () => {
      end.abort();
      return followed;
    },
  };
}

const running = ({ messages }: OpenPage): boolean =>
  messages.some((message) => message.type === 'change' && message.changed.mount === 'running');

/** [S-web-9] */
test('open pages share one connection to a mount, and the last one that closes ends it', async () => {
  const { name } = home.plantAccount();
  await startMount(name);
  expect(watching.size).toBe(0);
  const one = openPage();
  await until(() => running(one));
  const two = openPage();
  expect(watching.size).toBe(1);
  expect(two.messages[0]).toMatchObject({
    type: 'all',
    accounts: [{ name, mount: 'running', username: 'ann@example.com' }],
  });
  await one.close();
  expect(watching.size).toBe(1);
  await two.close();
  await until(() => watching.size === 0);
});

test('a page that is loaded again gets the history, and the mount only what is new', async () => {
  const { name } = home.plantAccount();
  await startMount(name);
  const one = openPage();
  await until(() => running(one));
  const record = { seq: 41, atMs: 1, event: { type: 'resumed' } as const };
  for (const send of watching.keys()) send({ type: 'event', ...record });
  await until(() => one.messages.some((message) => message.type === 'event'));
  await until(() => one.messages.some((message) => message.type === 'sample'));
  await one.close();
  const two = openPage();

  expect(two.messages[0]).toMatchObject({ accounts: [{ events: [record], samples: [{ pushed: 7, fetched: 9 }] }] });
  await until(() => [...watching.values()].includes(41));
  await two.close();
});

/** [S-web-8] */
test('an account that is added, and a mount that begins and ends, are shown', async () => {
  const page = openPage();
  expect(page.messages[0]).toMatchObject({ type: 'all', accounts: [] });
  const { name } = home.plantAccount();
  live.accountsChanged();
  expect(page.messages.at(-1)).toMatchObject({ accounts: [{ name, mount: 'none', status: null }] });
  await startMount(name);
  await until(() => running(page));
  await control?.close();
  await until(() => {
    const last = page.messages.at(-1);
    return last?.type === 'change' && last.changed.mount === 'none' && last.changed.status === null;
  });
  await page.close();
});
