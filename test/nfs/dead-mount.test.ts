import { randomBytes } from 'node:crypto';
import { createServer, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ContinuedMount } from '../../src/nfs/continued-mount.ts';
import { hasServer, isOurNfs, removalOfNfs } from '../../src/nfs/dead-mount.ts';
import { MOUNT_PROCEDURE } from '../../src/nfs/mount-program.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { MOUNT_PROGRAM } from '../../src/nfs/protocol.ts';
import { exportedPath, sourceOf } from '../../src/nfs/system-mount.ts';
import { XdrWriter } from '../../src/nfs/xdr.ts';
import { MemoryFileSystem } from '../kernel/memory-file-system.ts';
import { DarwinMount } from './darwin-mount.ts';
import { guardsOf } from './guards.ts';
import { NfsClient } from './nfs-client.ts';

const WAIT_MS_MAX = 60_000;

/** An entry of the mount table for a mount of ours that this port serves. */
function entryOf(port: number) {
  const source = sourceOf({ path: exportedPath(port, '0f'.repeat(16)) });
  return { directory: '/Users/ann/Cloud', type: 'nfs', source, device: source };
}

describe('the server of an NFS mount', () => {
  const ANSWER_MS_MAX = 300;
  let end = async (): Promise<void> => {};
  afterEach(() => end());

  /** @returns the port of a program that does this with each connection */
  async function listening(onConnected: (socket: Socket) => void): Promise<number> {
    const sockets: Socket[] = [];
    const server = createServer((socket) => {
      sockets.push(socket.on('error', () => {}));
      onConnected(socket);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    end = async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    };
    return (server.address() as { port: number }).port;
  }

  async function served(continued: ContinuedMount | null = null): Promise<NfsServer> {
    const deps = { log: silentLogger, clock: systemClock, continued };
    const server = await NfsServer.start(new MemoryFileSystem(), { readOnly: false, allowOther: false }, deps);
    end = () => server.close();
    return server;
  }

  /** The mount that the server has. */
  function mountOf({ exported }: NfsServer) {
    return { ...entryOf(exported.port), source: sourceOf(exported) };
  }

  test('exists from the moment when the root was given out, and is gone when its port refuses connections', async () => {
    const server = await served();
    const client = await NfsClient.connect(server.exported.port);
    await client.mnt(server.exported.path);
    expect(await hasServer(mountOf(server))).toBe(true);
    server.admit();
    expect(await hasServer(mountOf(server))).toBe(true);
    client.close();
    await server.close();
    expect(await hasServer(mountOf(server))).toBe(false);
  });

  test('names its mount when it continues it, and not while the path is a secret', async () => {
    const fresh = await served();
    expect(await dump(fresh)).not.toContain('cfs-mount');
    await fresh.close();
    const continued = await served({ path: exportedPath(1, 'ab'.repeat(16)), key: randomBytes(32) });
    expect(await dump(continued)).toContain(continued.exported.path);
  });

  async function dump({ exported }: NfsServer): Promise<string> {
    const client = await NfsClient.connect(exported.port);
    const reply = await client.call(MOUNT_PROGRAM, MOUNT_PROCEDURE.dump, new XdrWriter());
    client.close();
    return reply.rest().toString('latin1');
  }

  test.each<[string, (socket: Socket) => void]>([
    ['is silent, as a stopped process and the guard are', () => {}],
    ['closes the connection, as a server with too many of them does', (socket) => void socket.end()],
    ['resets the connection', (socket) => void socket.resetAndDestroy()],
  ])('counts as alive while the program on its port %s', async (_how, onConnected) => {
    expect(await hasServer(entryOf(await listening(onConnected)), ANSWER_MS_MAX)).toBe(true);
  });

  test.each<[string, (socket: Socket) => void]>([
    ['replies as HTTP', (socket) => void socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))],
    ['speaks first', (socket) => void socket.write('SSH-2.0-OpenSSH_9.2\r\n')],
    ['sends the call back', (socket) => void socket.pipe(socket)],
  ])('is gone if the program on its port %s', async (_how, onConnected) => {
    expect(await hasServer(entryOf(await listening(onConnected)), ANSWER_MS_MAX)).toBe(false);
  });

  test('is gone if its port serves another mount of ours', async () => {
    const other = await served({ path: exportedPath(1, 'ab'.repeat(16)), key: randomBytes(32) });
    expect(await hasServer(entryOf(other.exported.port))).toBe(false);
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
