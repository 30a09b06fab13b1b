import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import type { MountEvent } from '../../src/control/event-model.ts';
import { DesktopNotices } from '../../src/mount/desktop-notices.ts';
import { DesktopSession, missingForSession } from '../harness/desktop-session.ts';
import { titled } from '../harness/requirement.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

const missing = missingForSession();
const POLL = { timeout: 30_000, interval: 20 };
/** Names of other people: quotes, markup, a flag, an expansion of the shell, the separator of dbus-send(1). */
const FILE = `it's "<b>&", $(touch pwned) --all`;
const COPY = `${FILE} (conflicted copy)`;
const CONFLICT: MountEvent = { type: 'conflict', path: `photos/${FILE}`, copy: `photos/${COPY}` };
const EJECT: MountEvent = { type: 'unmounted', directory: '/home/ann/Cloud', pending: 2, busy: false };

describe.skipIf(missing !== null)(titled('notices with buttons', missing), () => {
  let session: DesktopSession;
  let directory: string;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'cfs-buttons-'));
  });

  afterEach(async () => {
    await session?.dispose();
    rmSync(directory, { recursive: true, force: true });
  });

  /** A program that records its words, one in a line, and ends with the exit code. */
  function program(name: string, exitCode = 0): string {
    const path = join(directory, name);
    const record = `printf '%s\\n' "\${0##*/}" "$@" >> '${join(directory, 'called')}'`;
    writeFileSync(path, `#!/bin/sh\n${record}\necho '${name}: <no> & why' >&2\nexit ${exitCode}\n`);
    chmodSync(path, 0o755);
    return path;
  }

  const called = (): readonly string[] => {
    const file = join(directory, 'called');
    return existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : [];
  };

  async function notices(
    how: {
      readonly capabilities?: readonly string[];
      readonly cfs?: number;
      readonly env?: Readonly<Record<string, string>>;
      readonly command?: string;
      readonly clock?: ManualClock;
    } = {},
  ): Promise<DesktopNotices> {
    session = await DesktopSession.start(how.capabilities);
    const programs = { cfs: [program('cfs', how.cfs)], cfsMount: [program('cfs-mount')] };
    const PATH = `${directory}${delimiter}${process.env.PATH}`;
    return new DesktopNotices({
      clock: how.clock ?? new ManualClock(),
      log: silentLogger,
      env: { ...process.env, PATH, ...session.env, ...how.env },
      place: { directory: '/home/ann/Cloud', flags: ['--account=ann', '--delete=forever'], programs },
      ...(how.command !== undefined && { command: how.command }),
    });
  }

  /** [S-notice-3] */
  test.each([
    ['compare', ['cfs', 'web', '--open']],
    ['mine', ['cfs', 'conflicts', 'keep', 'mine', '--', `/home/ann/Cloud/photos/${COPY}`]],
    ['theirs', ['cfs', 'conflicts', 'keep', 'theirs', '--', `/home/ann/Cloud/photos/${COPY}`]],
  ] as const)('the button %s of a conflict runs the command of cfs for this copy', async (action, words) => {
    (await notices()).show(CONFLICT);
    const notice = await session.notice(0);
    expect(notice.actions).toEqual({ default: 'Show', compare: 'Compare', mine: 'Keep mine', theirs: 'Keep theirs' });
    session.press(notice, action);
    await expect.poll(called, POLL).toEqual(words);
    expect(session.notices).toHaveLength(1);
  });

  /** [S-notice-3] */
  test('Show selects the files in the file manager', async () => {
    (await notices()).show(CONFLICT);
    session.press(await session.notice(0), 'default');
    await expect.poll(() => session.selected, POLL).toHaveLength(1);
    expect(session.selected[0]?.map((url) => decodeURIComponent(url))).toEqual([
      `file:///home/ann/Cloud/photos/${FILE}`,
      `file:///home/ann/Cloud/photos/${COPY}`,
    ]);
    expect(existsSync('/pwned')).toBe(false);
  });

  test('without a file manager on the bus, Show opens the folder', async () => {
    program('dbus-send', 1);
    program('xdg-open');
    (await notices()).show({ type: 'parked', path: 'a/b.txt', reason: 'quota' });
    const notice = await session.notice(0);
    expect(notice.actions).toEqual({ default: 'Show', show: 'Show' });
    session.press(notice, 'show');
    await expect.poll(() => called().slice(-2), POLL).toEqual(['xdg-open', '/home/ann/Cloud/a']);
  });

  /** [S-notice-2] */
  test('Send now mounts with the same options, unmounts, and reports that everything is sent', async () => {
    const shown = await notices();
    shown.show(EJECT);
    await shown.settled();
    expect(session.notices).toHaveLength(1); // the end of the process waits for it, and not for the button
    session.press(await session.notice(0), 'send');
    expect(await session.notice(1)).toMatchObject({ title: 'All changes are in the cloud', text: '' });
    const mounted = ['cfs-mount', '--account=ann', '--delete=forever', '--', '/home/ann/Cloud'];
    expect(called()).toEqual([...mounted, 'cfs', 'umount', '--', '/home/ann/Cloud']);
  });

  /** [S-notice-3] */
  test('a command that fails causes a notice with the first line of its reason', async () => {
    (await notices({ cfs: 9 })).show(EJECT);
    session.press(await session.notice(0), 'send');
    expect(await session.notice(1)).toMatchObject({
      title: 'Not all changes are in the cloud',
      text: 'cfs-mount: &lt;no&gt; &amp; why',
    });
  });

  /** [S-notice-3] */
  test('a desktop, or a notify-send, without buttons shows the notice with the command in its text', async () => {
    const text = expect.stringContaining('To push now, run: cfs-mount /home/ann/Cloud');
    (await notices({ capabilities: ['body'] })).show(EJECT);
    expect(await session.notice(0)).toMatchObject({ actions: {}, text });
    await session.dispose();

    const old = join(directory, 'old-notify-send');
    const refuse = 'case $1$2$3$4 in *--action*) echo "Unknown option --action" >&2; exit 1;; esac';
    writeFileSync(old, `#!/bin/sh\n${refuse}\nexec notify-send "$@"\n`, { mode: 0o755 });
    (await notices({ command: old })).show(EJECT);
    expect(await session.notice(0)).toMatchObject({ actions: {}, text });
  });

  test('eight notices wait for a button at the same time, and further ones have none', async () => {
    const clock = new ManualClock();
    const shown = await notices({ clock });
    for (let count = 0; count < 9; count++) {
      shown.show(CONFLICT);
      await shown.settled();
      clock.advance(3_600_000);
    }
    await session.notice(8);
    expect(session.notices.map(({ actions }) => Object.keys(actions).length)).toEqual([4, 4, 4, 4, 4, 4, 4, 4, 0]);
    session.press(await session.notice(0), 'mine');
    await expect.poll(called, POLL).toContain('keep');
    await expect
      .poll(
        async () => {
          shown.show(CONFLICT);
          // The limit of a notice that does not reach the desktop is of this clock, too.
          await shown.settled();
          clock.advance(3_600_000);
          return session.notices.slice(9).some(({ actions }) => actions.mine !== undefined);
        },
        { timeout: 30_000, interval: 200 },
      )
      .toBe(true);
  });

  test('the notice of an eject under systemd runs in a unit of its own, or in this one where that fails', async () => {
    const env = { INVOCATION_ID: '1', CFS_MOUNT_REQUEST: '{}', XDG_STATE_HOME: '/state' };
    const run = join(directory, 'systemd-run');
    const record = join(directory, 'outside');
    writeFileSync(run, `#!/bin/sh\necho "$*" > '${record}'\nwhile [ "$1" != -- ]; do shift; done; shift\nexec "$@"\n`);
    chmodSync(run, 0o755);
    (await notices({ env })).show(EJECT);
    await session.notice(0);
    const words = readFileSync(record, 'utf8');
    expect(words).toMatch(/^--user --collect --quiet --setenv=.*--setenv=XDG_STATE_HOME .*-- sh -c/);
    expect(words).not.toMatch(/INVOCATION_ID|CFS_MOUNT_REQUEST/);
    await session.dispose();

    writeFileSync(run, '#!/bin/sh\nexit 1\n');
    (await notices({ env })).show(EJECT);
    expect(await session.notice(0)).toMatchObject({ actions: { send: 'Send now' } });
  });
});
