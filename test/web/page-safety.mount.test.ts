import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { processLife } from '../../src/base/process-life.ts';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';
import type { PendingChange } from '../../src/control/status-model.ts';
import { Activity } from '../../src/mount/activity.ts';
import { watchMount } from '../../src/mount/mount-watch.ts';
import { CommandHome } from '../cli/cli-harness.ts';
import { idleStatus } from '../control/idle-status.ts';
import { missingPrograms, missingRoot, testUnless } from '../harness/requirement.ts';
import { missingBrowser, openPage, PageProgram, startBrowser, until } from './page-program.ts';

/** The ways to open the page, other browsers, and foreign pages; a mount with very much to do. */

const missing = missingBrowser();
const testHere = testUnless(missing);
let browser: Browser;
let home: CommandHome;
let program: PageProgram | null = null;

beforeAll(async () => {
  if (missing === null) browser = await startBrowser(['--host-resolver-rules=MAP evil.example 127.0.0.1']);
});

afterAll(async () => {
  await browser?.close();
});

beforeEach(() => {
  home = new CommandHome();
});

afterEach(async () => {
  await program?.stop();
  program = null;
  home.dispose();
});

/** The arguments of all processes, as ps(1) shows them to every user. */
function allArguments(): string {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  const lines = pids.map((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
    } catch {
      return '';
    }
  });
  return lines.join('\n');
}

const tokenOf = "sessionStorage.getItem('token')";

/** [S-web-2] */
testHere(
  '--open gives the browser a file with a single-use code, and no secret is in an argument, the output or the title',
  async () => {
    // As a browser would, it stays for a while with the path in its arguments.
    const script = home.path('a-browser');
    const seen = home.path('seen');
    writeFileSync(script, `#!/bin/sh\nprintf '%s' "$*" > '${seen}'\nsleep 5\n`);
    chmodSync(script, 0o755);
    program = await PageProgram.start({ ...home.env, BROWSER: script }, ['--open']);
    await until(() => existsSync(seen));
    const path = readFileSync(seen, 'utf8');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(path, '..')).mode & 0o777).toBe(0o700);
    const [, code = ''] = /#([\w-]{32})"/.exec(readFileSync(path, 'utf8')) ?? [];
    expect(code).not.toBe('');
    const during = allArguments();
    expect(during.includes(path)).toBe(true);
    const { page, troubles } = await openPage(browser);
    await page.goto(`file://${path}`);
    await page.getByRole('heading', { name: 'Accounts' }).waitFor();
    const token = (await page.evaluate(tokenOf)) as string;

    expect(page.url()).toBe(`${program.origin}/#/accounts`);
    expect(existsSync(path)).toBe(false);
    for (const text of [during, allArguments(), program.output, await page.title(), page.url()]) {
      expect(text.includes(code)).toBe(false);
      expect(text.includes(token)).toBe(false);
    }
    const again = await openPage(browser);
    await again.page.goto(`${program.origin}/#${code}`);
    await again.page.getByText('This browser is not signed in to the page').first().waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'Accounts' }).waitFor();
    expect(troubles).toEqual([]);
    expect(await program.stop()).toBe(0);
  },
);

/** [S-web-10] */
testHere('an address with a code and a place leads to that place, and loses the code', async () => {
  program = await PageProgram.start(home.env);
  const [, code = ''] = /its code, for one browser: (\S+)/.exec(program.output) ?? [];
  const { page, troubles } = await openPage(browser);

  await page.goto(`${program.origin}/#${code}/trash/someone%40example`);

  await page.getByRole('heading', { name: 'Trash' }).waitFor();
  expect(page.url()).toBe(`${program.origin}/#/trash/someone%40example`);
  expect(troubles).toEqual([]);
});

/** What ps(1) shows another user of this machine, again and again until `stop`. */
async function watchAsNobody(): Promise<{ readonly stop: () => Promise<string> }> {
  const loop = 'while :; do ps -ewwo args; sleep 0.05; done';
  const child = spawn('setpriv', ['--reuid=nobody', '--regid=nogroup', '--clear-groups', '/bin/sh', '-c', loop], {
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  let text = '';
  child.stdout.on('data', (more: Buffer) => {
    text += more;
  });
  const ended = once(child, 'close');
  await until(() => text.includes('ps -ewwo args'));
  return {
    stop: async () => {
      process.kill(-(child.pid as number), 'SIGKILL');
      await ended;
      return text;
    },
  };
}

/** [S-web-2] [S-others-1] */
testUnless(missing ?? missingRoot() ?? missingPrograms('ps', 'setpriv'))(
  'another user who runs ps sees no secret while Chromium opens the page, by --open or by the printed code',
  async () => {
    const script = home.path('a-browser');
    const seen = home.path('seen');
    const profile = home.path('profile');
    const pidFile = home.path('pid');
    const flags = '--headless=new --no-sandbox --disable-gpu --disable-background-networking --no-first-run';
    writeFileSync(
      script,
      `#!/bin/sh\necho $$ > '${pidFile}'\ncp "$1" '${seen}'\nexec /usr/bin/chromium ${flags} --user-data-dir='${profile}' --remote-debugging-port=0 "file://$1"\n`,
    );
    chmodSync(script, 0o755);
    const watching = await watchAsNobody();
    const browserLife = (): string => processLife(Number(readFileSync(pidFile, 'utf8')));
    let everything = '';
    const secrets: string[] = [];
    try {
      program = await PageProgram.start({ ...home.env, BROWSER: script }, ['--open']);
      await until(() => existsSync(join(profile, 'DevToolsActivePort')));
      const [, code = ''] = /#([\w-]{32})"/.exec(readFileSync(seen, 'utf8')) ?? [];
      const [port] = readFileSync(join(profile, 'DevToolsActivePort'), 'utf8').split('\n');
      const opened = await chromium.connectOverCDP(`http://127.0.0.1:${port}`);
      const page = opened.contexts()[0]?.pages()[0];
      if (page === undefined) throw new Error('the browser shows no page');
      await page.getByRole('heading', { name: 'Accounts' }).waitFor();
      secrets.push(code, (await page.evaluate(tokenOf)) as string);
      const session = await opened.newBrowserCDPSession();
      await session.send('Browser.close').catch(() => {});
      await until(() => browserLife() === 'ended');
      await program.stop();

      program = await PageProgram.start(home.env);
      const typed = await openPage(browser);
      await typed.page.goto(`${program.origin}/`);
      await typed.page.getByLabel('Code').fill(program.code);
      await typed.page.getByRole('button', { name: 'Open the page' }).click();
      await typed.page.getByRole('heading', { name: 'Accounts' }).waitFor();
      secrets.push(program.code, (await typed.page.evaluate(tokenOf)) as string);
    } finally {
      everything = await watching.stop();
      if (existsSync(pidFile) && browserLife() === 'running')
        process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
    }
    // It did see the programs, and the file that it cannot read.
    expect(everything).toMatch(/chromium.* file:\/\/\/.*open-\d+\.html/);
    expect(everything).toContain('--type=renderer');
    expect(everything).toContain('cfs.js web --open');
    for (const secret of secrets) {
      expect(secret.length).toBeGreaterThan(30);
      expect(everything.includes(secret)).toBe(false);
    }
  },
);

/** [S-web-2] */
testHere('a browser that cannot be started is named, with the way that is left', async () => {
  program = await PageProgram.start({ ...home.env, BROWSER: '/no/such/browser' }, ['--open']);
  await until(() => program?.output.includes('cannot be started (ENOENT)'));
  expect(program.output).toMatch(/open \/.*open-\d+\.html in a browser, or run cfs web without --open\n/);
});

/** [S-web-2] */
testHere('a second browser gets nothing without a code, and the printed code works once', async () => {
  program = await PageProgram.start(home.env);
  const one = await openPage(browser);
  await one.page.goto(`${program.origin}/`);
  await one.page.getByLabel('Code').fill(program.code);
  await one.page.getByRole('button', { name: 'Open the page' }).click();
  await one.page.getByRole('heading', { name: 'Accounts' }).waitFor();
  const two = await openPage(browser);
  await two.page.goto(`${program.origin}/`);
  for (const code of [program.code, 'x'.repeat(32)]) {
    await two.page.getByLabel('Code').fill(code);
    await two.page.getByRole('button', { name: 'Open the page' }).click();
    await two.page.getByText('this code is wrong or was used: run cfs web --open').last().waitFor();
  }
  expect(await two.page.getByText('Add an account').count()).toBe(0);
});

/** [S-web-2] */
testHere('a foreign page can neither read the page nor call it, nor reach it under its own name', async () => {
  program = await PageProgram.start(home.env);
  const { page } = await openPage(browser);
  await page.goto(`http://evil.example:${program.port}/`);
  expect(await page.textContent('body')).toContain('is not served under the name');

  const foreign = createServer((_request, response) => response.end('<title>foreign</title>'));
  foreign.listen(0, '127.0.0.1');
  await once(foreign, 'listening');
  try {
    await page.goto(`http://127.0.0.1:${(foreign.address() as AddressInfo).port}/`);
    const attempt = (path: string): Promise<unknown> =>
      page.evaluate(
        `fetch('${program?.origin}${path}', { method: 'POST', body: '{}' }).then(() => 'answered', () => 'refused')`,
      );
    for (const path of ['/session', '/live', '/call/pause']) expect(await attempt(path)).toBe('refused');
  } finally {
    foreign.close();
    foreign.closeAllConnections();
  }
});

/** [S-web-9] */
testHere('100,000 pending changes keep the page usable', async () => {
  const { name } = home.plantAccount();
  const { socketPath } = accountPaths(pathsOf(home.env), name);
  mkdirSync(join(socketPath, '..'), { recursive: true, mode: 0o700 });
  let count = 100_000;
  const changes = Array.from(
    { length: 1_000 },
    (_, at): PendingChange => ({
      path: `folder ${at % 10}/file ${at}.txt`,
      kind: 'upload',
      sizeBytes: 1_000,
      dueMs: null,
      attempts: 0,
    }),
  );
  const parked = changes.map(({ path }) => ({
    path: `parked ${path}`,
    kind: 'upload' as const,
    reason: 'quota: no room (413)',
    sinceMs: 1,
  }));
  const status = async () => idleStatus({ pending: { count, bytes: count * 1_000, changes }, parked });
  const events = { lastSeq: 0, since: () => [], subscribe: () => () => {} } as never;
  const activity = new Activity({ clock: systemClock });
  const handlers = {
    status,
    watch: (params, call) => watchMount({ events, status, activity, clock: systemClock }, params, call),
    metrics: () => ({ bytes: { pushed: 0, fetched: 0 } }) as never,
    conflicts: () => ({ conflicts: [], count: 0 }),
  } as Partial<ControlHandlers> as ControlHandlers;
  const control = new ControlServer({ socketPath, handlers, clock: systemClock, log: silentLogger });
  await control.listen();
  try {
    program = await PageProgram.start(home.env);
    const { page, troubles } = await openPage(browser);
    await page.goto(`${program.origin}/`);
    await page.getByLabel('Code').fill(program.code);
    await page.getByRole('button', { name: 'Open the page' }).click();
    await page.getByText('100,000 changes wait').first().waitFor();
    await page.getByText('What waits').click();
    await page.getByText('and 99,900 more').first().waitFor();
    count = 99_999;
    activity.happened();
    await page.getByText('99,999 changes wait').first().waitFor();
    expect(await page.title()).toBe('(1000) Cloud folders');
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Needs you' }).click();
    await page.getByText('and 900 more parked changes').first().waitFor();
    expect(troubles).toEqual([]);
  } finally {
    await control.close();
  }
});

testHere('Ctrl-C ends the page, and nothing is left', async () => {
  program = await PageProgram.start({ ...home.env, BROWSER: 'true' }, ['--open']);
  program.child.kill('SIGINT');
  await until(() => program?.child.exitCode !== null);
  expect(program.child.exitCode).toBe(0);
  expect(readdirSync(home.path('run/cfs/web'))).toEqual([]);
});
