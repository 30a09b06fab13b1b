import { describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';

/**
 * `mv big existing` over a mount that never read `big`: online, without a service, and killed in between. What the server was
 * asked tells that not a byte went either way; each request that dies is in move-over.test.ts.
 */

const BIG_BYTES = 100 * 1024 * 1024;

const missing = missingForMounts();
describe.skipIf(missing !== null)(`mv of what is not here${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  test.each(['online', 'offline', 'killed'] as const)(
    'mv over another file keeps both histories and sends no byte: %s',
    { timeout: 120_000 },
    async (how) => {
      const server = await ReferenceServer.start(['--log-level', 'debug']);
      const { root } = await server.reader.places();
      const big = await made(server, root, 'big', [Buffer.from('old'), Buffer.alloc(BIG_BYTES, 'big ')]);
      const existing = await made(server, root, 'existing', [Buffer.from('first'), Buffer.from('second')]);
      const histories = async () => [await historyOf(server, big), await historyOf(server, existing)];
      const before = await histories();
      const mount = await MountFixture.start({ server, flags: ['--settle', how === 'killed' ? '1h' : '100ms'] });
      onTestFailed(mount.printLogs);
      try {
        expect((await mount.run('stat -c %s big existing')).stdout).toBe(`${BIG_BYTES}\n6\n`);
        const asked = (await server.requestsSoFar()).length;
        if (how === 'offline') await server.pause();

        await mount.run('mv -f big existing');

        expect((await mount.run('ls; stat -c %s existing')).stdout).toBe(`existing\n${BIG_BYTES}\n`);
        server.resume();
        if (how === 'killed') {
          await mount.kill9();
          await mount.mount();
        }
        await mount.sync();
        const requests = (await server.requestsSoFar()).slice(asked);
        expect(requests.filter((request) => request.startsWith('PUT')).length).toBeGreaterThanOrEqual(2);
        // Which version a large file is, may be asked at any time, ahead of its first read.
        expect(requests.filter((request) => /data$|^POST .*version$/.test(request))).toEqual([]);
        expect([...(await server.reader.entries()).values()]).toMatchObject([{ path: 'existing', url: big }]);
        expect(await server.reader.trash()).toEqual(['existing']);
        expect(await histories()).toEqual(before);
      } finally {
        server.resume();
        await mount.dispose();
        await server.dispose();
      }
    },
  );
});

/** A file with these versions, oldest first. @returns its URL */
async function made(
  server: ReferenceServer,
  folder: string,
  name: string,
  versions: readonly Buffer[],
): Promise<string> {
  const body = `<file><displayName>${name}</displayName><mediaType/></file>`;
  const url = (await server.reader.send('POST', folder, body)).headers.get('location') ?? '';
  for (const bytes of versions) expect((await server.reader.send('PUT', `${url}/data`, bytes)).ok).toBe(true);
  return url;
}

/** The addresses of a file's versions, newest first. */
async function historyOf(server: ReferenceServer, file: string): Promise<readonly string[]> {
  const history = await (await server.reader.send('GET', `${file}/version`)).text();
  return [...history.matchAll(/<ref>(.*?)<\/ref>/g)].map(([, url = '']) => url);
}
