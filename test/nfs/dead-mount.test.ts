import { createServer, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { hasServer, isOurNfs, removalOfNfs } from '../../src/nfs/dead-mount.ts';
import { exportedPath, sourceOf } from '../../src/nfs/system-mount.ts';
import { DarwinMount } from './darwin-mount.ts';
import { guardsOf } from './guards.ts';

const WAIT_MS_MAX = 60_000;

/** An entry of the mount table for a mount of ours that this port serves. */
function entryOf(port: number) {
  const source = sourceOf({ path: exportedPath(port, '0f'.repeat(16)) });
  return { directory: '/Users/ann/Cloud', type: 'nfs', source, device: source };
}

describe('the server of an NFS mount', () => {
  let server: Server;
  let port = 0;
  beforeAll(async () => {
    server = createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as { port: number }).port;
  });
  afterAll(() => server.close());

  test('exists while its port accepts connections, and is gone when the port refuses them', async () => {
    expect(await hasServer(entryOf(port))).toBe(true);
    await new Promise((resolve) => server.close(resolve));
    expect(await hasServer(entryOf(port))).toBe(false);
  });

  test('counts as alive for mounts of other programs, whose port is unknown', async () => {
    const other = { ...entryOf(1), source: 'nas:/export' };
    expect(isOurNfs(entryOf(1))).toBe(true);
    expect(isOurNfs(other)).toBe(false);
    expect(await hasServer(other)).toBe(true);
  });
});

test('the message about an NFS mount names the command of the system', () => {
  expect(removalOfNfs('/Users/ann/Cloud', 'darwin')).toBe('umount -f /Users/ann/Cloud');
  expect(removalOfNfs('/mnt', 'linux')).toBe('umount -f -l /mnt, as root,');
});

describe('an NFS mount whose process and guard are both dead', () => {
  let mount: DarwinMount;
  beforeAll(async () => {
    mount = await DarwinMount.prepare();
  }, WAIT_MS_MAX);
  afterAll(() => mount?.dispose());

  async function mountAndKillBoth(): Promise<void> {
    const { client, port } = await mount.mount();
    const pid = await mount.process();
    for (const guard of guardsOf(mount.ground.directory)) process.kill(guard, 'SIGKILL');
    process.kill(pid ?? Number.NaN, 'SIGKILL');
    client.close();
    await vi.waitUntil(async () => !(await hasServer(entryOf(port))), { timeout: WAIT_MS_MAX, interval: 100 });
    mount.ground.declareDead();
  }

  test('is taken away by the next cfs-mount on its directory, which accesses the directory only afterwards', {
    timeout: 3 * WAIT_MS_MAX,
  }, async () => {
    onTestFailed(() => console.error(mount.log()));
    await mountAndKillBoth();

    const { client, root } = await mount.mount();

    expect(mount.ground.unmounted).toBe(`-f ${mount.ground.directory}\n`);
    expect(mount.ground.wrong).toBe('');
    expect(await client.names(root)).toBeDefined();
    expect((await mount.ground.run('cfs', 'umount')).code).toBe(0);
    client.close();
  });

  test('is taken away by cfs umount, which does not access the directory', {
    timeout: 3 * WAIT_MS_MAX,
  }, async () => {
    onTestFailed(() => console.error(mount.log()));
    await mountAndKillBoth();

    const umount = await mount.ground.run('cfs', 'umount', mount.ground.directory);

    expect(umount.stdout + umount.stderr).toContain('removed the dead mount');
    expect(umount.code).toBe(0);
    expect(mount.ground.isMounted).toBe(false);
    expect(mount.ground.wrong).toBe('');
  });
});
