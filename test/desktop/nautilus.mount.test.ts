import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFailed } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { testUnless, titled } from '../harness/requirement.ts';
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
      driver = new NautilusDriver(built, mount.env());
    });

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
      server.on('connection', (socket: Socket) => answerStates(socket, join(home, 'mnt'), () => isAnswering));
      await expect.poll(() => connections.length, { timeout: 30_000 }).toBeGreaterThan(0);
      for (const socket of connections) socket.destroy();

      await expect
        .poll(
          async () => {
            await driver.answers('show', file);
            return driver.lines.includes(`${file}\tcfs-pending`);
          },
          { timeout: 30_000 },
        )
        .toBe(true);
      isAnswering = false;

      await driver.shows(file, '');
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

/** A mount whose files are all pending, while it answers. */
function answerStates(socket: Socket, directory: string, isAnswering: () => boolean): void {
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
    const lines = text.split('\n');
    text = lines.pop() ?? '';
    for (const line of lines) {
      const { id, method, params } = JSON.parse(line);
      const states = (params.paths ?? []).map(() => ({ kind: 'file', state: 'pending', pinned: 'none', here: 'all' }));
      if (method === 'states' && isAnswering())
        socket.write(`${JSON.stringify({ id, result: { directory, states } })}\n`);
    }
  });
}
