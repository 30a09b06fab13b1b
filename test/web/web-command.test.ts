import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { OPENING_MS_MAX, webCommand } from '../../src/cli/commands/web.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { CommandHome } from '../cli/cli-harness.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

/** How long `cfs web --open` runs: its browser is a program that shows nothing. */

let home: CommandHome;
let clock: ManualClock;
let printed: string;
let stop: AbortController;
let running: Promise<number>;

beforeEach(() => {
  home = new CommandHome();
  clock = new ManualClock();
  printed = '';
  stop = new AbortController();
  const print = (text: string): void => {
    printed += text;
  };
  const env = { ...home.env, BROWSER: '/bin/true' };
  const deps = { print, warn: print, redraw: () => {}, paths: pathsOf(home.env), clock, env, files: new Map() };
  running = webCommand(deps, { port: 0, hosts: [], open: true, path: null, until: stop.signal });
});

afterEach(async () => {
  stop.abort();
  await running;
  home.dispose();
});

/** What the file for the browser holds, as soon as it is there. */
async function opening(): Promise<{ readonly origin: string; readonly code: string }> {
  const folder = join(home.path('run'), 'cfs/web');
  await expect.poll(() => readdirSync(folder).filter((name) => name.startsWith('open-'))).toHaveLength(1);
  const [name = ''] = readdirSync(folder);
  const [, origin = '', code = ''] =
    /url=(http:[^/]*\/\/[^/]*)\/#([\w-]+)"/.exec(readFileSync(join(folder, name), 'utf8')) ?? [];
  return { origin, code };
}

/** [S-web-2] */
test('cfs web --open ends when no browser came, because no browser can come any more', async () => {
  await opening();
  clock.advance(OPENING_MS_MAX - 1);
  expect(printed).not.toContain('has opened');

  clock.advance(1);

  expect(await running).toBe(0);
  expect(printed).toContain('no browser has opened the page');
});

test('cfs web --open runs on after a browser has used its code', async () => {
  const { origin, code } = await opening();
  const headers = { origin, 'content-type': 'application/json' };
  const { status } = await fetch(`${origin}/session`, { method: 'POST', headers, body: JSON.stringify({ code }) });
  expect(status).toBe(200);

  clock.advance(OPENING_MS_MAX);

  expect(printed).not.toContain('has opened');
  expect(await Promise.race([running, new Promise((resolve) => setImmediate(() => resolve('it runs')))])).toBe(
    'it runs',
  );
});
