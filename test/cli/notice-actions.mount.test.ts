import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, onTestFailed, test } from 'vitest';
import { DesktopSession, missingForSession } from '../harness/desktop-session.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';

const missing = missingForMounts() ?? missingForSession();
const POLL = { timeout: 60_000, interval: 50 };

describe.skipIf(missing !== null)(titled('the buttons of notices', missing), () => {
  let session: DesktopSession;
  let mount: MountFixture;
  let programs: string;

  beforeEach(() => {
    programs = mkdtempSync(join(tmpdir(), 'cfs-buttons-'));
  });

  afterEach(async () => {
    rmSync(programs, { recursive: true, force: true });
    await mount?.dispose();
    await session?.dispose();
  });

  async function start(flags: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<void> {
    onTestFailed(() => mount.printLogs());
    session = await DesktopSession.start();
    mount = await MountFixture.start({ flags, env: { ...session.env, ...env } });
  }

  /** Two mounts save the same file; the first one sends last, and shows the notice. @returns the name of the copy */
  async function conflict(file: string): Promise<string> {
    await mount.run(`printf base > '${file}'`);
    await mount.sync();
    const other = await mount.freshStore(['--settle', '10m']);
    await other.run(`cat '${file}' && printf theirs > '${file}'`);
    await mount.run(`printf mine > '${file}'`);
    await other.sync();
    await mount.sync();
    return (await mount.run("ls | grep 'conflicted copy'")).stdout.trim();
  }

  const contents = async (file: string): Promise<readonly string[]> => {
    const { stdout } = await mount.run(`ls | wc -l; cat '${file}'`);
    return stdout.split('\n');
  };

  /** [S-notice-3] */
  test('Keep mine and Keep theirs in the notice of a conflict leave the bytes of that side alone', async () => {
    await start(['--settle', '10m']);
    const file = 'one, & only.txt';
    expect(await conflict(file)).toContain(`not from ${hostname()}`);
    const notice = await session.notice(0);
    expect(notice.title).toBe('A file was changed in two places');
    session.press(notice, 'mine');
    await expect.poll(() => contents(file), POLL).toEqual(['1', 'mine']);

    await mount.unmount();
    await mount.mount();
    await conflict(file);
    session.press(await session.notice(1), 'theirs');
    await expect.poll(() => contents(file), POLL).toEqual(['1', 'theirs']);
    await mount.sync();
    expect([...(await mount.server.reader.entries()).keys()]).toEqual([file]);
  });

  /** [S-notice-2] */
  test('Send now in the notice of an eject sends the changes with the options of the mount, and unmounts again', async () => {
    // The mount has ended when the number of the notice arrives.
    writeFileSync(join(programs, 'stdbuf'), '#!/bin/sh\nshift\nexec "$@"\n', { mode: 0o755 });
    const PATH = `${programs}${delimiter}${process.env.PATH}`;
    await start(['--root', 'account', '--settle', '10m', '--drain', '0s'], { PATH });
    const { stdout: top } = await mount.run('ls');
    const folder = top.split('\n').find((name) => name.includes('Briefcase')) ?? '';
    await mount.run(`echo one > '${folder}/one.txt'; echo two > '${folder}/two.txt'`);
    await mount.unmountFromOutside();

    const notice = await session.notice(0);
    expect(notice.actions).toEqual({ send: 'Send now' });
    expect(notice.text).toContain('2 changes are kept here');
    expect((await mount.server.reader.entries()).size).toBe(0);

    session.press(notice, 'send');
    expect(await session.notice(1)).toMatchObject({ title: 'All changes are in the cloud', actions: {} });
    expect([...(await mount.server.reader.entries()).keys()].sort()).toEqual(['one.txt', 'two.txt']);
    expect(await mount.status()).toBeNull();
  });
});
