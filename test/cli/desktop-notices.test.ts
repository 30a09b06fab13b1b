import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { DesktopNotices } from '../../src/mount/desktop-notices.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

const HOUR_MS = 3_600_000;
const SESSION = { DBUS_SESSION_BUS_ADDRESS: 'unix:path=/nowhere' };

let directory: string;
let clock: ManualClock;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-notices-'));
  clock = new ManualClock();
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** A program that writes down what it is given, a line for each call. */
function noting(): { readonly command: string; shown(count: number): Promise<string[]> } {
  const command = join(directory, 'notify');
  const told = join(directory, 'told');
  writeFileSync(command, `#!/bin/sh\nprintf '%s|' "$@" >> ${told}; echo >> ${told}\n`);
  chmodSync(command, 0o755);
  const lines = (): string[] => (existsSync(told) ? readFileSync(told, 'utf8').split('\n').slice(0, -1) : []);
  const shown = async (count: number): Promise<string[]> => {
    await expect.poll(lines, { timeout: 10_000, interval: 10 }).toHaveLength(count);
    return lines();
  };
  return { command, shown };
}

/** [S-notice-1] */
test('each kind of notification is shown once an hour, and the next one has the count', async () => {
  const { command, shown } = noting();
  const notices = new DesktopNotices({ clock, log: silentLogger, place: null, env: SESSION, command });

  notices.show({ type: 'parked', path: 'one.txt', reason: 'quota' });
  await shown(1);
  for (const path of ['two.txt', 'three.txt']) notices.show({ type: 'parked', path, reason: 'quota' });
  notices.show({ type: 'conflict', path: 'a.txt', copy: 'b.txt' });
  await shown(2);
  notices.show({ type: 'sign-in-needed' });
  await shown(3);
  clock.advance(HOUR_MS - 1);
  notices.show({ type: 'parked', path: 'four.txt', reason: 'quota' });
  notices.show({ type: 'uploaded', path: 'fine.txt', version: null, sizeBytes: 1 });
  clock.advance(1);
  notices.show({ type: 'parked', path: 'five.txt', reason: 'quota' });

  const lines = await shown(4);
  expect(lines.map((line) => line.split('|')[3])).toEqual([
    'The cloud rejected a change',
    'A file was changed in two places',
    'Sign in to the cloud again',
    'The cloud rejected a change',
  ]);
  expect(lines[3]).toContain('parked five.txt: quota');
  expect(lines[3]).toContain('and 3 more since the last notice');
});

test('a name is neither a flag nor markup', async () => {
  const { command, shown } = noting();
  const notices = new DesktopNotices({ clock, log: silentLogger, place: null, env: SESSION, command });

  notices.show({ type: 'parked', path: '--urgency=<b>&\n.txt', reason: 'forbidden' });

  const [line = ''] = await shown(1);
  expect(line.split('|').slice(2, 3)).toEqual(['--']);
  expect(line).toContain('--urgency=&lt;b&gt;&amp;\\x0a.txt');
});

test('without the program, and without a session, nothing is shown and nothing fails', async () => {
  const { command, shown } = noting();
  const nobody = new DesktopNotices({
    clock,
    log: silentLogger,
    place: null,
    env: { XDG_RUNTIME_DIR: directory },
    command,
  });
  nobody.show({ type: 'sign-in-needed' });
  const missing = new DesktopNotices({
    clock,
    log: silentLogger,
    place: null,
    env: SESSION,
    command: join(directory, 'missing'),
  });
  missing.show({ type: 'sign-in-needed' });

  writeFileSync(join(directory, 'bus'), '');
  new DesktopNotices({ clock, log: silentLogger, place: null, env: { XDG_RUNTIME_DIR: directory }, command }).show({
    type: 'conflict',
    path: 'a',
    copy: 'b',
  });

  const [only] = await shown(1);
  expect(only).toContain('A file was changed in two places');
});

/** [S-notice-2] */
test('the notice of an unmount has the count and the command, and none appears if nothing is left', async () => {
  const { command, shown } = noting();
  const notices = new DesktopNotices({ clock, log: silentLogger, place: null, env: SESSION, command });

  notices.show({ type: 'unmounted', directory: '/home/ann/Cloud', pending: 0, busy: false });
  notices.show({ type: 'unmounted', directory: '/home/ann/Cloud', pending: 2, busy: false });
  await notices.settled();

  expect(await shown(1)).toEqual([
    expect.stringContaining('|Changes are not in the cloud yet|unmounted /home/ann/Cloud; 2 changes are kept'),
  ]);
  expect((await shown(1))[0]).toContain('To push now, run: cfs-mount /home/ann/Cloud|');
});

test('the end of a mount waits for a running notice, and not for one that hangs', async () => {
  const command = join(directory, 'notify');
  const begun = join(directory, 'begun');
  const go = join(directory, 'go');
  const killed = join(directory, 'killed');
  writeFileSync(
    command,
    `#!/bin/sh\ntrap 'touch ${killed}; exit' TERM; touch ${begun}; until [ -e ${go} ] || [ ! -d ${directory} ]; do sleep 0.01; done\n`,
  );
  chmodSync(command, 0o755);
  const notices = new DesktopNotices({ clock, log: silentLogger, place: null, env: SESSION, command });
  await notices.settled();

  notices.show({ type: 'sign-in-needed' });
  let isSettled = false;
  const hanging = notices.settled().then(() => {
    isSettled = true;
  });
  await expect.poll(() => existsSync(begun), { timeout: 10_000, interval: 10 }).toBe(true);
  expect(isSettled).toBe(false);
  clock.advance(2_000);
  await hanging;
  expect(existsSync(killed)).toBe(false);

  const ending = notices.settled();
  writeFileSync(go, '');
  await ending;
});
