import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFailed } from 'vitest';
import { processLife } from '../../src/base/process-life.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { testUnless, titled } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';
import { answerStates } from './answered-states.ts';
import { BuiltExtension, missingForExtension, NautilusDriver } from './nautilus-driver.ts';

/** The extension of Nautilus, driven by a program with the interfaces of Nautilus and without windows. */

const MISSING = missingForExtension();
const NO_MOUNT = MISSING ?? missingForMounts();
const NO_ANSWERS = [
  ...[
    '}',
    '',
    '[]',
    '1',
    '{"id":1,"result":{}}',
    '{"id":1,"result":{"directory":1,"states":2}}',
    '{"id":1,"error":{}}',
  ].map((line) => `${line}\n`),
];
const MENU_OF_FILE = [
  'Cloud',
  '> Versions…',
  '> Restore Previous Version',
  '> Keep on This Machine',
  '> Free Space',
  '> Copy Public Link',
  '> Show in the Page',
];
const COPY = 'a (conflicted copy 2026-11-20 not from laptop).txt';

describe.skipIf(MISSING !== null)(titled('the extension of Nautilus', MISSING), () => {
  let built: BuiltExtension;

  beforeAll(async () => {
    built = await BuiltExtension.build();
  }, 60_000);

  afterAll(() => built?.dispose());

  describe('over a mount', () => {
    let mount: MountFixture;
    let driver: NautilusDriver;
    const at = (name: string): string => join(mount.directory, name);

    beforeEach(async () => {
      mount = await MountFixture.start();
      driver = new NautilusDriver(built, { ...mount.env(), ...programs() });
    });

    /** `cfs` on the path, and a browser that keeps what it is to show, and the process id of the `cfs web` that started it. */
    function programs(): Readonly<Record<string, string>> {
      const browser = join(mount.env().HOME as string, 'a-browser');
      writeFileSync(browser, `#!/bin/sh\necho $PPID > '${browser}.server'\ncat "$1" > '${browser}.saw'\n`, {
        mode: 0o755,
      });
      return { PATH: `${join(PROJECT, 'bin')}:${process.env.PATH}`, BROWSER: browser };
    }

    async function pageShown(): Promise<string> {
      const saw = join(mount.env().HOME as string, 'a-browser.saw');
      const address = (): string => (existsSync(saw) ? readFileSync(saw, 'utf8') : '');
      await expect.poll(address, { timeout: 30_000 }).toContain('</title>');
      const [, route = ''] = /url=http:[^#]*#[\w-]{32}([^"]*)"/.exec(address()) ?? [];
      rmSync(saw);
      const server = Number(readFileSync(join(mount.env().HOME as string, 'a-browser.server'), 'utf8'));
      process.kill(server, 'SIGTERM');
      await expect.poll(() => processLife(server), { timeout: 30_000 }).toBe('ended');
      return decodeURIComponent(route);
    }

    afterEach(async () => {
      await driver?.dispose();
      await mount?.dispose();
    });

    /** [S-desktop-6] */
    testUnless(NO_MOUNT)(
      'each state has its emblem, and the emblem follows the state',
      { timeout: 120_000 },
      async () => {
        onTestFailed(mount.printLogs);
        await mount.run(`mkdir sub; echo a > a.txt; echo b > '${COPY}'; echo c > clean; echo d > sub/deep`);
        await mount.sync();
        const other = await mount.freshStore();
        const elsewhere = new NautilusDriver(built, other.env());
        await mount.cfs(['pause']);
        await mount.run('echo new > new; echo new > sub/new');
        for (const name of ['a.txt', COPY, 'clean', 'new', 'sub', 'nothing']) driver.send('show', at(name));

        await driver.shows(at('a.txt'), 'cfs-conflict');
        await driver.shows(at(COPY), 'cfs-conflict');
        await driver.shows(at('new'), 'cfs-pending');
        await driver.shows(at('sub'), 'cfs-pending');
        await mount.cfs(['resume']);
        await mount.sync();
        await driver.shows(at('new'), '');
        await driver.shows(at('sub'), '');
        await mount.cfs(['pin', at('clean')]);
        await driver.shows(at('clean'), 'cfs-pinned');
        await mount.cfs(['unpin', at('clean')]);
        await driver.shows(at('clean'), '');

        await other.run('ls');
        elsewhere.send('show', join(other.directory, 'clean'));
        await elsewhere.shows(join(other.directory, 'clean'), 'cfs-cloud-only');
        await other.run('cat clean');
        await elsewhere.shows(join(other.directory, 'clean'), '');
        elsewhere.send('show', '/etc/passwd');
        await elsewhere.shows('/etc/passwd', '');
        await elsewhere.dispose();
      },
    );

    /** [S-desktop-8] */
    testUnless(NO_MOUNT)(
      'the menu pins, frees, restores, links, and opens the page',
      { timeout: 120_000 },
      async () => {
        onTestFailed(mount.printLogs);
        const file = at("it's a file.txt");
        await mount.run(`mkdir sub; echo one > "it's a file.txt"`);
        await mount.sync();
        await mount.run(`echo two > "it's a file.txt"`);
        await mount.sync();
        driver.send('show', file);
        driver.send('show', at('sub'));
        await expect.poll(() => driver.menu(file), { timeout: 30_000 }).toEqual(MENU_OF_FILE);
        const MENU_OF_BOTH = ['Cloud', '> Keep on This Machine', '> Free Space'];
        await expect.poll(() => driver.menu(file, at('sub')), { timeout: 30_000 }).toEqual(MENU_OF_BOTH);
        expect(await driver.menu(file, '/etc/passwd')).toEqual([]);

        await driver.click('Keep on This Machine', file);
        await driver.shows(file, 'cfs-pinned');
        expect(await driver.menu(file)).toContain('> Free Space (off)');
        await driver.click('Stop Keeping on This Machine', file);
        await driver.shows(file, '');
        await driver.click('Free Space', file);
        await driver.shows(file, 'cfs-cloud-only');
        await driver.click('Copy Public Link', file);
        expect(await driver.says('public link')).toContain('http://');
        await driver.click('Restore Previous Version', file);
        await driver.says('is restored');
        expect((await mount.run(`cat "it's a file.txt"`)).stdout).toBe('one\n');
        await driver.click('Versions…', file);
        const { accounts } = JSON.parse((await mount.cfs(['status', '--json'])).stdout);
        expect(await pageShown()).toBe(`/file/${accounts[0].name}/it's a file.txt`);
        await driver.click('Show in the Page', at('sub'));
        expect(await pageShown()).toBe(`/files/${accounts[0].name}/sub`);
        await mount.cfs(['pause']);
        await mount.run('echo new > new');
        await driver.click('Free Space', at('new'));
        await driver.says('No space is freed');
      },
    );

    /** [S-desktop-6] */
    testUnless(NO_MOUNT)(
      'no emblem stays after the mount has ended, and they come back with the next one',
      async () => {
        onTestFailed(mount.printLogs);
        await mount.cfs(['pause']);
        await mount.run('echo new > new');
        driver.send('show', at('new'));
        await driver.shows(at('new'), 'cfs-pending');

        await mount.kill9();
        await driver.shows(at('new'), '');
        await mount.mount();

        await driver.shows(at('new'), 'cfs-pending');
      },
    );
  });

  describe('over a socket that does not answer', () => {
    let home: string;
    let server: Server;
    let connections: Socket[] = [];
    let received = '';

    beforeEach(async () => {
      home = mkdtempSync(join(tmpdir(), 'cfs-hung-'));
      mkdirSync(join(home, 'cfs', 'ann@example.com'), { recursive: true });
      connections = [];
      received = '';
      server = createServer((socket) => {
        connections.push(socket);
        socket.on('error', () => {});
        socket.on('data', (chunk) => {
          received += chunk;
        });
      });
      await new Promise<void>((listening) =>
        server.listen(join(home, 'cfs', 'ann@example.com', 'control.sock'), listening),
      );
    });

    afterEach(() => {
      for (const socket of connections) socket.destroy();
      server.close();
      rmSync(home, { recursive: true, force: true });
    });

    /** [S-desktop-7] */
    testUnless(MISSING)('the main loop runs, and the connection is given up after its deadline', async () => {
      const driver = new NautilusDriver(built, { XDG_RUNTIME_DIR: home, XDG_STATE_HOME: home });
      await expect.poll(() => received, { timeout: 30_000 }).toContain('"states"');

      for (let nth = 0; nth < 2_000; nth++) driver.send('show', join(home, `file ${nth}`));
      await driver.answers();

      const [socket] = connections as [Socket];
      await expect.poll(() => socket.readableEnded || socket.destroyed, { timeout: 60_000 }).toBe(true);
      await driver.answers();
      await driver.dispose();
    });

    /** [S-desktop-7] */
    testUnless(MISSING)('a mount that stops answering later has no emblems any more', async () => {
      const driver = new NautilusDriver(built, { XDG_RUNTIME_DIR: home, XDG_STATE_HOME: home });
      const file = join(home, 'mnt', 'file');
      let isAnswering = true;
      server.on('connection', (socket: Socket) =>
        answerStates(socket, join(home, 'mnt'), 'pending', () => isAnswering),
      );
      await expect.poll(() => connections.length, { timeout: 30_000 }).toBeGreaterThan(0);
      for (const socket of connections) socket.destroy();

      await driver.showsInTheEnd(file, 'cfs-pending');
      isAnswering = false;

      await driver.shows(file, '');
      await driver.dispose();
    });

    /** [S-desktop-8] */
    testUnless(MISSING)('a change that needs attention can be retried, and discarded with a second click', async () => {
      const driver = new NautilusDriver(built, { XDG_RUNTIME_DIR: home, XDG_STATE_HOME: home });
      const files = ['a', 'b'].map((name) => join(home, 'mnt', name));
      const [first = ''] = files;
      server.on('connection', (socket: Socket) => answerStates(socket, join(home, 'mnt'), 'parked:quota'));
      await expect.poll(() => connections.length, { timeout: 30_000 }).toBeGreaterThan(0);
      for (const socket of connections) socket.destroy();
      for (const file of files) await driver.showsInTheEnd(file, 'cfs-attention');

      await driver.click('Retry', ...files);
      await driver.says('The change is not retried: not now');
      await expect.poll(() => received, { timeout: 30_000 }).toContain('"method":"retry","params":{"path":"b"}');
      expect(received).toContain('"method":"retry","params":{"path":"a"}');
      expect((await driver.menu(first)).slice(-2)).toEqual(['> Discard', '> > Discard My Changes Permanently']);
      expect(await driver.answers('click', 'Discard')).toContain('clicked');
      expect(received).not.toContain('discard');
      await driver.click('Discard My Changes Permanently', first);
      const call = '"method":"discard","params":{"path":"a","isSure":true}';
      await expect.poll(() => received, { timeout: 30_000 }).toContain(call);
      await driver.dispose();
    });

    /** [S-desktop-7] */
    testUnless(MISSING)('answers that are no answers end the connection, and nothing else', async () => {
      for (const text of NO_ANSWERS) {
        const before = connections.length;
        const driver = new NautilusDriver(built, { XDG_RUNTIME_DIR: home, XDG_STATE_HOME: home });
        await expect.poll(() => connections.length, { timeout: 30_000 }).toBeGreaterThan(before);
        const socket = connections[before] as Socket;
        socket.write(text);
        await expect.poll(() => socket.readableEnded || socket.destroyed, { timeout: 30_000 }).toBe(true);
        await driver.answers('show', '/x');
        await driver.dispose();
      }
    });
  });

  /** [S-desktop-7] */
  testUnless(MISSING)('without a mount there are no emblems', async () => {
    const driver = new NautilusDriver(built, { XDG_RUNTIME_DIR: '/nonexistent', XDG_STATE_HOME: '/nonexistent' });

    driver.send('show', '/etc/passwd');
    await driver.shows('/etc/passwd', '');
    await driver.dispose();
  });
});
