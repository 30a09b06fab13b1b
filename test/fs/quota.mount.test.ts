import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { pathsOf } from '../../src/config/paths.ts';
import { callControl } from '../../src/control/client.ts';
import { runningMounts } from '../../src/mount/running-mounts.ts';
import { openAdministration } from '../../src/server/local-back-end.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';

const LIMIT_BYTES = 10 * 1024 ** 3;

let server: ReferenceServer;
let mount: MountFixture;

beforeAll(async () => {
  server = await ReferenceServer.start();
  const data = await openAdministration({ dataDirectory: server.data });
  await data.administration.setQuota(server.account.username, LIMIT_BYTES);
  await data.close();
  mount = await MountFixture.start({ server, flags: ['--settle', '100ms'] });
});

afterAll(async () => {
  await mount?.dispose();
  await server?.dispose();
});

async function df(): Promise<{ readonly size: number; readonly used: number }> {
  const { stdout } = await mount.run('stat -f -c "%S %b %f" .');
  const [blockBytes = 0, blocks = 0, free = 0] = stdout.trim().split(' ').map(Number);
  return { size: blocks * blockBytes, used: (blocks - free) * blockBytes };
}

async function requestsSent(): Promise<number> {
  const [running] = await runningMounts(pathsOf(mount.env()));
  return running === undefined ? -1 : (await callControl(running.socketPath, 'metrics', {})).requests.sent;
}

/** [S-df-1] */
test('df shows the quota and its usage without a request, also offline', async () => {
  onTestFailed(mount.printLogs);
  await expect.poll(df, { timeout: 10_000, interval: 50 }).toEqual({ size: LIMIT_BYTES, used: 0 });

  const before = await requestsSent();
  await mount.run('for i in 1 2 3 4 5 6 7 8 9; do stat -f . > /dev/null; done');
  expect(await requestsSent()).toBe(before);

  await mount.run('head -c 3145728 /dev/zero > big');
  await mount.sync();
  await expect.poll(df, { timeout: 30_000, interval: 200 }).toEqual({ size: LIMIT_BYTES, used: 3 * 1024 ** 2 });

  await mount.unmount();
  await server.pause();
  try {
    await mount.mount();
    expect(await df()).toEqual({ size: LIMIT_BYTES, used: 3 * 1024 ** 2 });
  } finally {
    server.resume();
  }
});
