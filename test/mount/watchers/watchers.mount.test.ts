import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { processLife } from '../../../src/base/process-life.ts';
import { pathsOf } from '../../../src/config/paths.ts';
import { callControl } from '../../../src/control/client.ts';
import { runningMounts } from '../../../src/mount/running-mounts.ts';
import { inotifyWatches } from '../../../src/mount/watchers/inotify-watches.ts';
import { runCommand } from '../../harness/command.ts';
import { MountFixture, missingForMounts } from '../../harness/mount-fixture.ts';
import { missingFile, missingPrograms, missingRoot, testUnless } from '../../harness/requirement.ts';
import { EventListener } from './event-listener.ts';

const missing = missingForMounts() ?? missingPrograms('cc');
/** Gives a new process the id that follows. */
const LAST_PID = '/proc/sys/kernel/ns_last_pid';

/** The announcer of a mount; null while none runs. */
function announcerOf(mount: MountFixture): number | null {
  for (const thread of readdirSync(`/proc/${mount.pid}/task`)) {
    const children = readFileSync(`/proc/${mount.pid}/task/${thread}/children`, 'utf8').trim().split(' ');
    for (const child of children)
      if (child !== '' && readFileSync(`/proc/${child}/comm`, 'utf8').trim() === 'cfs-announcer') return Number(child);
  }
  return null;
}

/** Shell: runs JavaScript in a process with the id `pid`, in the PID namespace of the shell. */
function asProcess(pid: number, script: string): string {
  return `until echo ${pid - 1} > ${LAST_PID}; sh -c '[ $$ = ${pid} ] || exit 99; exec "$0" -e "$1"' ${process.execPath} '${script}'; s=$?; [ $s != 99 ]; do :; done; [ $s = 0 ]`;
}

describe.skipIf(missing !== null)(`watchers of a mount${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  let other: MountFixture;
  const listeners: EventListener[] = [];

  beforeAll(async () => {
    mount = await MountFixture.start({
      flags: ['--dir-ttl', '1h', '--settle', '0s'],
      serverFlags: ['--log-level', 'debug'],
    });
    other = await mount.freshStore();
  });
  afterEach(async () => {
    for (const listener of listeners.splice(0)) await listener.dispose();
  });
  afterAll(() => mount?.dispose());

  async function listen(how: 'inotify' | 'fanotify', ...paths: readonly string[]): Promise<EventListener> {
    const listener = await EventListener.start(how, ...paths.map((path) => join(mount.directory, path)));
    listeners.push(listener);
    return listener;
  }

  /** Folders that both mounts know and this one uses. */
  async function folders(...names: readonly string[]): Promise<void> {
    await other.run(`mkdir -p ${names.join(' ')}`);
    await other.sync();
    await mount.cfs(['refresh', mount.directory]);
    await mount.run(`ls -l ${names.join(' ')}`);
  }

  /** A script in the other mount, and the changes of `folders` that this one learns. */
  async function elsewhere(script: string, ...names: readonly string[]): Promise<void> {
    await other.run(script);
    await other.sync();
    for (const name of names) await mount.cfs(['refresh', join(mount.directory, name)]);
  }

  test('the watches of another program in the mount are found, by device and inode', async () => {
    onTestFailed(mount.printLogs);
    await folders('watched');
    const { stdout } = await mount.run("stat -c '%Hd:%Ld %i' watched");
    const [device = '', ino] = stdout.trim().split(' ');
    expect(await inotifyWatches(device)).not.toContain(Number(ino));
    await listen('inotify', 'watched');

    expect(await inotifyWatches(device)).toContain(Number(ino));
  });

  /** [S-fresh-5] */
  test('a folder that a program watches, one that it has open, and that of a watched file are followed after a walk through others', async () => {
    onTestFailed(mount.printLogs);
    await other.run('mkdir follow; cd follow; mkdir watched opened file left $(seq 20); printf 1 > file/f');
    await other.sync();
    const entries = await mount.server.reader.entries();
    const listings = async (name: string): Promise<number> => {
      const { pathname } = new URL(entries.get(`follow/${name}`)?.url ?? '');
      return (await mount.server.requestsSoFar()).filter((request) => request.includes(`${pathname}/contents`)).length;
    };
    const window = await mount.freshStore(['--dir-ttl', '1s', '--settle', '0s']);
    await window.run('cd follow; ls watched opened file left');
    const [watched, file] = ['watched', 'file/f'].map((name) => join(window.directory, 'follow', name)) as [
      string,
      string,
    ];
    const listener = await EventListener.start('inotify', watched, file);
    listeners.push(listener);
    const holder = spawn('sh', ['-c', 'exec 3< "$0"; echo opened; exec cat', join(window.directory, 'follow/opened')]);
    await once(holder.stdout, 'data');

    await window.run('cd follow; for n in $(seq 20); do ls $n; done');

    const before = await listings('left');
    for (const name of ['watched', 'opened', 'file']) {
      const from = await listings(name);
      await expect.poll(() => listings(name), { timeout: 30_000 }).toBeGreaterThan(from + 1);
    }
    expect(await listings('left')).toBeLessThanOrEqual(before + 1);
    await other.run('printf 1 > follow/watched/new; printf 22 > follow/file/f');
    await other.sync();
    await expect
      .poll(() => listener.events, { timeout: 60_000 })
      .toEqual(expect.arrayContaining(['0 CREATE new', '1 MODIFY .']));
    // Nothing of it runs during the tests that count requests.
    holder.stdin.end();
    await listener.dispose();
    await window.unmount();
  });

  /** [S-notify-1] */
  test('each change made elsewhere is one inotify event of its kind', async () => {
    onTestFailed(mount.printLogs);
    await folders('kinds', 'kinds2');
    await elsewhere(
      'cd kinds; printf 1 > changed; printf 1 > deleted; printf 1 > moved; printf 1 > away; mkdir emptied mdir',
      'kinds',
    );
    await mount.run('cat kinds/changed; ls -lR kinds kinds2');
    const listener = await listen('inotify', 'kinds', 'kinds2', 'kinds/changed');

    const event = async (script: string, last: string): Promise<readonly string[]> => {
      await elsewhere(script, 'kinds', 'kinds2');
      return listener.until(last);
    };
    expect(await event('printf 1 > kinds/new', '0 CREATE new')).toEqual(['0 CREATE new']);
    expect(await event('mkdir kinds/folder', '0 CREATE ISDIR folder')).toEqual(['0 CREATE ISDIR folder']);
    expect(await event('printf 22 > kinds/changed', '2 MODIFY .')).toEqual(['0 MODIFY changed', '2 MODIFY .']);
    expect(await event('rm kinds/deleted', '0 DELETE deleted')).toEqual(['0 DELETE deleted']);
    expect(await event('rmdir kinds/emptied', '0 DELETE ISDIR emptied')).toEqual(['0 DELETE ISDIR emptied']);
    expect(await event('mv kinds/moved kinds/renamed', '0 MOVED_TO renamed')).toEqual([
      ...['0 MOVED_FROM moved', '0 MOVED_TO renamed'],
    ]);
    expect(await event('mv kinds/mdir kinds/rdir', '0 MOVED_TO ISDIR rdir')).toEqual([
      ...['0 MOVED_FROM ISDIR mdir', '0 MOVED_TO ISDIR rdir'],
    ]);
    expect(await event('mv kinds/away kinds2/away', '1 MOVED_TO away')).toEqual([
      ...['0 MOVED_FROM away', '1 MOVED_TO away'],
    ]);
    expect((await mount.run('ls kinds kinds2; cat kinds/new kinds/changed kinds/renamed kinds2/away')).stdout).toBe(
      'kinds:\nchanged\nfolder\nnew\nrdir\nrenamed\n\nkinds2:\naway\n12211',
    );
  });

  /** The announcer, and all events before this one have arrived. */
  async function announcer(folder: string): Promise<number> {
    const listener = await listen('inotify', folder);
    await elsewhere(`printf 1 > ${folder}/first`, folder);
    await listener.until('0 CREATE first');
    return announcerOf(mount) as number;
  }

  /** [S-notify-2] */
  test('500 changes at once are all announced, and cause no request, no transfer and no push', async () => {
    onTestFailed(mount.printLogs);
    await folders('many');
    const listener = await listen('inotify', 'many');
    const bytesMoved = async () => {
      const [running] = await runningMounts(pathsOf(mount.env()));
      return (await callControl(running?.socketPath ?? '', 'metrics', {})).bytes;
    };
    const bytes = await bytesMoved();

    await elsewhere('cd many; for i in $(seq 500); do printf 1 > $i; done', 'many');
    const ofFiles = async () => (await mount.server.requestsSoFar()).filter((request) => !request.includes(' /user/')); // the quota
    const requests = await ofFiles();
    await expect.poll(() => listener.events.length, { timeout: 60_000 }).toBe(500);

    expect(new Set(listener.events)).toEqual(new Set(Array.from({ length: 500 }, (_, i) => `0 CREATE ${i + 1}`)));
    expect(await ofFiles()).toEqual(requests);
    expect((await mount.status())?.pending.count).toBe(0);
    expect(await bytesMoved()).toEqual(bytes);
  });

  /** [S-notify-1] */
  test('a change of this mount is reported once, and to watchers of another mount too', async () => {
    await folders('ours');
    await other.run('ls ours');
    const here = await listen('inotify', 'ours');
    const there = await EventListener.start('inotify', join(other.directory, 'ours'));
    listeners.push(there);

    await mount.run('mkdir ours/folder; mv ours/folder ours/moved; rmdir ours/moved; printf 1 > ours/file');
    await mount.sync();
    await mount.cfs(['refresh', join(mount.directory, 'ours')]);
    await other.cfs(['refresh', join(other.directory, 'ours')]);
    await there.until('0 CREATE file');
    await elsewhere('printf 1 > ours/last', 'ours');

    expect((await here.until('0 CREATE last')).filter((event) => !event.includes('ISDIR'))).toEqual([
      ...['0 CREATE file', '0 MODIFY file', '0 CLOSE_WRITE file', '0 CREATE last'],
    ]);
  });

  /** [S-notify-3] */
  test('a name that a user makes again before the announced removal keeps its bytes', async () => {
    onTestFailed(mount.printLogs);
    await folders('again');
    await elsewhere('printf theirs > again/x; printf theirs > again/y', 'again');
    const helper = await announcer('again');
    const listener = await listen('inotify', 'again');
    process.kill(helper, 'SIGSTOP');

    await elsewhere('rm again/x again/y', 'again');
    await mount.run('printf mine > again/x; printf mine > again/y');
    process.kill(helper, 'SIGCONT');
    await elsewhere('printf 1 > again/last', 'again');
    await listener.until('0 CREATE last');

    expect((await mount.run('cat again/x again/y')).stdout).toBe('minemine');
    await mount.sync();
    await other.cfs(['refresh', join(other.directory, 'again')]);
    expect((await other.run('cat again/x again/y')).stdout).toBe('minemine');
  });

  /** [S-notify-3] */
  test('a call that the announcer makes later than its ticket changes nothing', async () => {
    await folders('late');
    await elsewhere('printf theirs > late/x', 'late');
    const helper = await announcer('late');
    const listener = await listen('inotify', 'late');
    process.kill(helper, 'SIGSTOP');

    await elsewhere('rm late/x', 'late');
    await mount.run('sleep 1.5; printf mine > late/x');
    process.kill(helper, 'SIGCONT');
    await elsewhere('printf 1 > late/last', 'late');
    await listener.until('0 CREATE last');

    expect((await mount.run('cat late/x')).stdout).toBe('mine');
  });

  const missingPid = missingRoot() ?? missingFile(LAST_PID) ?? missingPrograms('unshare');
  /** What the program with the id of the announcer does, and what must be left of it. */
  const PROGRAM = (folder: string): string =>
    `const fs = require("fs"); process.chdir("${folder}"); fs.writeFileSync("x", "mine"); fs.unlinkSync("x"); fs.writeFileSync("new", "mine"); fs.mkdirSync("folder"); fs.rmdirSync("empty"); fs.unlinkSync("old"); fs.renameSync("from", "to"); fs.truncateSync("long", 1)`;
  const BEFORE = 'mkdir empty; printf 1 > old; printf moved > from; printf long > long; printf 1 > x';

  /** The files that the program changes. Changed within two seconds, a new file counts as not arrived whole on the service. */
  async function before(folder: string): Promise<void> {
    await folders(folder);
    await elsewhere(`cd ${folder}; ${BEFORE}`, folder);
    await sleep(3_000);
  }

  async function expectDone(folder: string): Promise<void> {
    const script = `cd ${folder}; ls; cat new to long`;
    const { stdout } = await mount.run(script);
    expect(stdout).toBe('first\nfolder\nlong\nnew\nto\nminemovedl');
    await mount.sync();
    await other.cfs(['refresh', join(other.directory, folder)]);
    expect((await other.run(script)).stdout).toBe(stdout);
  }

  /** [S-notify-3] */
  testUnless(missingPid)('a program with the process id of a killed announcer works as any other', async () => {
    onTestFailed(mount.printLogs);
    await before('taken');
    const helper = await announcer('taken');
    process.kill(helper, 'SIGSTOP');
    await elsewhere('rm taken/x', 'taken'); // its ticket is outstanding
    process.kill(helper, 'SIGKILL');

    await mount.run(asProcess(helper, PROGRAM('taken')), { timeoutMs: 60_000 });

    await expectDone('taken');
  });

  /** [S-notify-3] */
  testUnless(missingPid)(
    'a program with the number of the announcer in another PID namespace works as any other',
    async () => {
      onTestFailed(mount.printLogs);
      await before('space');
      const helper = await announcer('space');
      process.kill(helper, 'SIGSTOP');
      await elsewhere('rm space/x', 'space');

      const script = asProcess(helper, PROGRAM('space'));
      await runCommand([
        'unshare',
        '--pid',
        '--fork',
        '--mount-proc',
        'sh',
        '-c',
        `cd "$0" && ${script}`,
        mount.directory,
      ]);
      process.kill(helper, 'SIGCONT');

      await expectDone('space');
    },
  );

  /** [S-notify-4] */
  testUnless(missingRoot())('announcements open no file', async () => {
    await folders('opened');
    await elsewhere('printf 1 > opened/x; printf 1 > opened/y', 'opened');
    await announcer('opened');
    const opened = await listen('fanotify', '.');
    const listener = await listen('inotify', 'opened');

    await elsewhere('printf 22 > opened/x; rm opened/y; mkdir opened/folder; printf 1 > opened/last', 'opened');
    await listener.until('0 CREATE last');

    expect(opened.events).toEqual([]);
  });

  /** [S-notify-4] */
  test('a program that is announced while it is started in a loop never fails to start', async () => {
    await folders('programs');
    await elsewhere("printf '#!/bin/sh\nexit 0\n' > programs/run", 'programs');
    await mount.run('chmod +x programs/run');
    await mount.sync();
    const listener = await listen('inotify', 'programs');
    const starting = mount.run('while [ ! -e programs/last ]; do programs/run || exit 1; done', { timeoutMs: 120_000 });

    for (let round = 1; round <= 5; round++) {
      await elsewhere(`printf '#!/bin/sh\nexit 0 # ${'x'.repeat(round)}\n' > programs/run`, 'programs');
      await listener.until('0 MODIFY run');
    }
    await elsewhere('printf 1 > programs/last', 'programs');

    await starting;
  });

  /** [S-notify-5] */
  test('with --no-notify, and before the first change, no announcer runs', async () => {
    const silent = await mount.freshStore(['--dir-ttl', '1h', '--no-notify']);
    await folders('silent');
    await silent.run('ls -l silent');
    const listener = await EventListener.start('inotify', join(silent.directory, 'silent'));
    listeners.push(listener);
    const here = await listen('inotify', 'silent');

    await elsewhere('printf 1 > silent/new', 'silent');
    await here.until('0 CREATE new');
    await silent.cfs(['refresh', join(silent.directory, 'silent')]);
    await silent.run('ls -l silent; printf 1 > silent/last');
    await listener.until('0 CREATE last');

    expect(listener.events.filter((event) => event.includes('new'))).toEqual([]);
    expect(announcerOf(silent)).toBeNull();
  });

  /** [S-stop-1] */
  test('a mount whose announcer runs ends in order', async () => {
    const brief = await mount.freshStore();
    await folders('brief');
    await brief.run('ls brief');
    const listener = await EventListener.start('inotify', join(brief.directory, 'brief'));
    await elsewhere('printf 1 > brief/new', 'brief');
    await brief.cfs(['refresh', join(brief.directory, 'brief')]);
    await listener.until('0 CREATE new');
    await listener.dispose();
    const helper = announcerOf(brief) as number;

    expect((await brief.unmount()).code).toBe(0);

    await expect.poll(() => processLife(helper)).toBe('ended');
  });
});
