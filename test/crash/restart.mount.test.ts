import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

const missing = missingForMounts();
describe.skipIf(missing !== null)(`ends and starts${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  beforeAll(async () => {
    mount = await MountFixture.start();
  });
  afterAll(() => mount?.dispose());

  test('after an orderly end the service has everything and a start finds it as it was', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run(`mkdir d; seq 1 100000 > d/numbers; printf x > d/small; chmod 640 d/small; ln -s small d/link
      touch -d '2001-02-03 04:05:06.789012345' d/numbers`);
    const before = await treeDigests(mount);
    const attributes = `stat -c '%n %i %a %u %g %s %y' d d/numbers d/small`;
    const { stdout } = await mount.run(attributes);

    expect((await mount.unmount()).code).toBe(0);
    expect(treeDifferences(await mount.serverTree(), before)).toEqual([]);
    await mount.mount();

    expect(treeDifferences(await treeDigests(mount), before)).toEqual([]);
    expect((await mount.run(attributes)).stdout).toBe(stdout);
  });

  test('FIFOs and sockets survive a restart and exist on this machine only', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run(`mkdir special; mkfifo -m 640 special/fifo
      ${process.execPath} -e "require('net').createServer().listen('special/socket', () => process.kill(process.pid, 'SIGKILL'))" || true
      echo passed > special/fifo & cat special/fifo > special/passed; wait`);
    const shown = `stat -c '%n %F %i %a' special/fifo special/socket`;
    const { stdout } = await mount.run(shown);
    expect(stdout).toMatch(/^special\/fifo fifo \d+ 640\nspecial\/socket socket \d+ \d+\n$/);

    await mount.unmount(['--now']);
    await mount.mount();
    await mount.sync();

    expect((await mount.run(shown)).stdout).toBe(stdout);
    expect((await mount.run('cat special/passed')).stdout).toBe('passed\n');
    const there = [...(await mount.serverTree()).keys()].filter((path) => path.startsWith('special/'));
    expect(there.sort()).toEqual(['special/', 'special/passed']);
    expect((await mount.run('rm -r special; echo gone')).stdout).toBe('gone\n');
  });

  test('what was not pushed at an end is pushed after the next start', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('seq 1 200000 > later');
    const wanted = await treeDigests(mount);

    await mount.unmount(['--now']);
    await mount.mount();
    await mount.sync();

    expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
  });

  test('a server that is gone is no reason not to start, to read and to write', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.unmount();
    await mount.server.kill9();

    await mount.mount();
    await mount.run(
      'test "$(wc -l < later)" = 200000; echo offline > new; mkdir folder; mv later folder/moved; rm d/small',
    );
    const wanted = await treeDigests(mount);
    await mount.server.restart();
    await mount.sync();

    expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
  });

  test('SIGKILL of mount and server together loses no closed file', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run(`for n in $(seq 1 50); do echo "file $n" > "f$n"; done; kill -9 ${mount.pid}`);
    await mount.gone();
    await mount.server.kill9();

    await mount.server.restart();
    await mount.mount();
    const { stdout } = await mount.run('cat f1 f25 f50');
    expect(stdout).toBe('file 1\nfile 25\nfile 50\n');
    const wanted = await treeDigests(mount);
    await mount.sync();

    expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
  });

  test.each([
    { what: 'is killed', end: () => mount.kill9() },
    { what: 'ends in order', end: () => mount.unmount(['--now']) },
  ])(
    'what a program writes by `> file`, and is in the middle of when the mount $what, leaves what was there',
    async ({ end }) => {
      onTestFailed(() => mount.printLogs());
      await mount.run("head -c 300000 /dev/zero | tr '\\0' A > whole");
      await mount.sync();
      const script = `exec node -e 'fs.writeSync(1, Buffer.alloc(100000)); setInterval(() => {}, 1000)' > ${mount.directory}/whole`;
      const shell = spawn('sh', ['-c', script], { stdio: 'ignore' });
      const gone = new Promise((resolve) => shell.once('exit', resolve));
      try {
        await expect.poll(async () => (await mount.run('stat -c %s whole')).stdout).toBe('100000\n');
        await end();
      } finally {
        shell.kill('SIGKILL');
        await gone;
      }
      await mount.mount();

      expect((await mount.run('stat -c %s whole; tr -d A < whole | wc -c; printf x > whole; : > whole')).stdout).toBe(
        '300000\n0\n',
      );
      const empty = createHash('sha256').digest('hex');
      await expect.poll(async () => (await mount.serverTree()).get('whole')).toBe(empty);
    },
  );

  test('a mount that was killed a moment ago is not taken for one that lives', async () => {
    onTestFailed(() => mount.printLogs());
    for (let kill = 0; kill < 3; kill++) {
      await mount.run('stat .'); // what the kernel remembers of it outlives the process
      process.kill(mount.pid, 'SIGKILL');

      await mount.mount();
      expect((await mount.run('cat f1')).stdout).toBe('file 1\n');
    }
  });

  test('fusermount3 -u from outside ends the process, and nothing is lost', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('echo outside > outside');
    const wanted = await treeDigests(mount);

    await mount.unmountFromOutside();
    await mount.mount();
    await mount.sync();

    expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
  });
});
