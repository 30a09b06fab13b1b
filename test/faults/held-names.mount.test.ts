import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { O_CREAT, O_WRONLY } from '../conformance/file-api.ts';
import { HeldNames } from '../harness/held-names.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';

/** More than the connections to the service, each of which looks its name up. */
const READERS = 20;
const SAVES = 50;
const LARGE_BYTES = 300_000;

const missing = missingForMounts();
describe.skipIf(missing !== null)(`a resolver that hangs${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let names: HeldNames;
  let server: ReferenceServer;
  let mount: MountFixture;

  beforeAll(async () => {
    names = await HeldNames.make();
    // For every program that is started from here on.
    for (const [name, value] of Object.entries(names.env)) vi.stubEnv(name, value);
    server = await ReferenceServer.start([], {}, 'service.test');
    const { reader } = server;
    const { root } = await reader.places();
    for (let n = 0; n < READERS; n++) {
      const document = `<file><displayName>far${n}</displayName><mediaType/></file>`;
      const file = (await reader.send('POST', root, document)).headers.get('location') ?? '';
      await reader.send('PUT', `${file}/data`, Buffer.alloc(LARGE_BYTES, `${n}`));
    }
    mount = await MountFixture.start({ server });
  });
  afterAll(async () => {
    names?.letGo();
    await mount?.dispose();
    await server?.dispose();
    vi.unstubAllEnvs();
    await names?.dispose();
  });

  test('a hanging resolver counts as an unreachable service: local files, fsync(2), stop and start work', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('ls > /dev/null; echo near > near');
    await mount.unmount();
    names.hold();
    await mount.mount(['--read-timeout', '1s', '--settle', '100ms']);

    const readers = Promise.all(
      Array.from({ length: READERS }, (_, n) => mount.run(`cat far${n} > /dev/null`, { anyExitCode: true })),
    );
    const writer = await SyscallProcess.start(mount.directory);
    for (let n = 0; n < SAVES; n++) {
      const fd = await writer.open('new', O_CREAT | O_WRONLY, 0o644);
      await writer.write(fd, 0, Buffer.alloc(LARGE_BYTES, `${n}`));
      await writer.fsync(fd);
      await writer.close(fd);
      await writer.rename('new', `save${n}`);
    }
    await writer.dispose();
    expect((await mount.run('cat near')).stdout).toBe('near\n');
    for (const { code, stderr } of await readers) {
      expect(code).not.toBe(0);
      expect(stderr).toMatch(/timed out/i);
    }

    // An exit that waits for the threads in which names are looked up would have no end.
    await mount.unmount(['--now']);
    await mount.mount();
    expect((await mount.run('ls | grep -c ^save; cat near')).stdout).toBe(`${SAVES}\nnear\n`);

    names.letGo();
    await mount.sync();
    const pushed = [...(await mount.serverTree()).keys()].filter((name) => name.startsWith('save'));
    expect(pushed.length).toBe(SAVES);
    expect((await mount.run('cat far7 | wc -c')).stdout.trim()).toBe(`${LARGE_BYTES}`);
  });
});
