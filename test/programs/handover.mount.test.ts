import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { processLife } from '../../src/base/process-life.ts';
import { runCommand } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';

/** One store, one owner: who has it, and how it goes from one mount to the next. */

/** Longer than any test waits. */
const DRAIN = '30min';

const missing = missingForMounts();
describe.skipIf(missing !== null)(`a store in use${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--drain', DRAIN, '--settle', '1s'] });
  });
  afterAll(() => mount?.dispose());

  test('a store in use is refused to a second mount with a message that names the process', async () => {
    onTestFailed(mount.printLogs);
    const second = join(mount.directory, '..', 'second');
    mkdirSync(second);
    const program = [process.execPath, join(import.meta.dirname, '../../dist/cli/cfs-mount.js'), second];

    const { code, stderr } = await runCommand(program, { env: mount.env(), anyExitCode: true });

    expect(stderr).toContain(`process ${mount.pid}`);
    expect(code).toBe(5);
  });

  test('a mount that is ending hands its store over instead of pushing for half an hour', async () => {
    onTestFailed(mount.printLogs);
    await mount.run('ls');
    await mount.server.kill9();
    await mount.run('echo pending > pending; head -c 3000000 /dev/urandom > large');
    const digest = (await mount.run('sha256sum large')).stdout.slice(0, 64);
    const { pid } = mount;
    await runCommand(['fusermount3', '-u', mount.directory]);
    expect(processLife(pid)).toBe('running');

    await mount.mount();

    expect(mount.pid).not.toBe(pid);
    expect((await mount.run('cat pending; sha256sum large')).stdout).toBe(`pending\n${digest}  large\n`);
    await expect.poll(() => processLife(pid), { timeout: 60_000 }).toBe('ended');
    // The one that went took its own socket away, and not that of the next.
    await mount.server.restart();
    await mount.sync();
    expect((await mount.serverTree()).get('large')).toBe(digest);
  });
});
