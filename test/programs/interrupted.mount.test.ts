import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';

/** What people break off: a copy, a mount that still has much to push, a read that waits. */

const HALF_BYTES = 3_000_000;
const PENDING_BYTES = 20_000_000;
/** Far longer than breaking off takes, however busy the machine. */
const READ_TIMEOUT = '2min';
const BROKEN_OFF_MS_MAX = 20_000;

const missing = missingForMounts();
describe.skipIf(missing !== null)(`broken off${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let server: ReferenceServer;
  let own: MountFixture | null = null;
  beforeAll(async () => {
    server = await ReferenceServer.start();
  });
  afterEach(async () => {
    server.resume();
    await own?.dispose();
    own = null;
  });
  afterAll(() => server?.dispose());

  async function mounted(...flags: string[]): Promise<MountFixture> {
    const started = await MountFixture.start({ server, flags });
    own = started;
    onTestFailed(started.printLogs);
    return started;
  }

  const entry = async (path: string) => (await server.reader.entries()).get(path);

  test('a mount that ends by Ctrl-C in the middle of a copy publishes nothing of it, then or after the next start', async () => {
    const mount = await mounted('--settle', '100ms');
    // One process that writes, and is not done.
    const script = `const fd = fs.openSync(process.argv[1], 'w'); fs.writeSync(fd, Buffer.alloc(${HALF_BYTES})); setInterval(() => {}, 1e6)`;
    const copy = spawn(process.execPath, ['-e', script, join(mount.directory, 'copied')], { stdio: 'ignore' });
    try {
      await vi.waitFor(async () => expect((await mount.run('stat -c %s copied')).stdout.trim()).toBe(`${HALF_BYTES}`), {
        timeout: BROKEN_OFF_MS_MAX,
      });

      process.kill(mount.pid, 'SIGINT');
      await mount.gone();
      expect((await entry('copied'))?.sizeBytes ?? 0).toBeLessThanOrEqual(0);
    } finally {
      copy.kill('SIGKILL');
    }
    await mount.mount();
    await mount.run('echo whole > whole');
    await mount.sync();
    expect((await entry('whole'))?.sizeBytes).toBe(6);
    expect((await entry('copied'))?.sizeBytes ?? 0).toBeLessThanOrEqual(0);
  });

  test('fusermount3 -u and cfs-mount at once, with 20 MB pending: the new mount goes on where the old one was', async () => {
    const mount = await mounted('--settle', '1h');
    await mount.run(`head -c ${PENDING_BYTES} /dev/urandom > pending`);
    const digest = (await mount.run('sha256sum pending')).stdout.slice(0, 64);

    await runCommand(['fusermount3', '-u', mount.directory]);
    await mount.mount();

    expect((await mount.run('sha256sum pending')).stdout.slice(0, 64)).toBe(digest);
    await mount.sync();
    expect((await mount.serverTree()).get('pending')).toBe(digest);
  });

  test('Ctrl-C ends a read that waits for a service that does not answer, long before its time is over', async () => {
    const mount = await mounted();
    await mount.run('head -c 3000000 /dev/urandom > far');
    await mount.sync();
    const other = await mount.freshStore(['--read-timeout', READ_TIMEOUT]);
    await other.run('ls -l');
    await server.pause();
    const reader = spawn('cat', [join(other.directory, 'far')], { stdio: 'ignore' });
    const ended = new Promise<NodeJS.Signals | null>((resolve) => reader.once('exit', (_, signal) => resolve(signal)));
    const system = (): string => readFileSync(`/proc/${reader.pid}/wchan`, 'utf8');
    await vi.waitUntil(() => /fuse|request_wait|folio|filemap/.test(system()), { timeout: BROKEN_OFF_MS_MAX });

    const begunMs = performance.now();
    reader.kill('SIGINT');

    expect(await ended).toBe('SIGINT');
    console.info(`a waiting read ended ${Math.round(performance.now() - begunMs)} ms after Ctrl-C`);
    expect(performance.now() - begunMs).toBeLessThan(BROKEN_OFF_MS_MAX);
  });
});
