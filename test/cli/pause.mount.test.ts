import { afterAll, beforeAll, expect, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';

/** `cfs pause` and `cfs resume` beside a running mount. */

let mount: MountFixture;

beforeAll(async () => {
  mount = await MountFixture.start();
});

afterAll(async () => {
  await mount.dispose();
});

const cfs = (...args: readonly string[]) => mount.cfs(args, { anyExitCode: true });

/** [S-pushpause-1] [S-pushpause-2] [S-pushpause-3] */
test('a paused mount sends nothing, says so to every command that would push, and stays paused over a restart', async () => {
  const paused = await cfs('pause');
  expect(paused).toMatchObject({ code: 0, stdout: 'pushing is paused until cfs resume; 0 changes wait\n' });
  await mount.run('printf one > a.txt && printf two > b.txt');
  for (const args of [['sync', '--wait'], ['sync']]) {
    const { code, stdout, stderr } = await cfs(...args);
    expect(code).toBe(10);
    expect(stdout).toBe('');
    expect(stderr).toMatch(/^cfs: .*pushing is paused.*cfs resume ends the pause\n$/);
  }
  expect((await cfs('status')).stdout).toContain('nothing is pushed: cfs resume ends the pause');

  const { code, stderr } = await cfs('umount');
  expect(code).toBe(10);
  expect(stderr).toContain('2 changes not pushed: pushing is paused');
  await mount.gone();
  await mount.mount();
  expect((await mount.status())?.paused?.untilMs).toBeNull();
  expect(await mount.serverTree()).toEqual(new Map());

  expect((await cfs('resume')).stdout).toBe('pushing is resumed; 2 changes wait\n');
  await mount.sync();
  expect([...(await mount.serverTree()).keys()].sort()).toEqual(['a.txt', 'b.txt']);
  expect((await cfs('resume')).stdout).toBe('pushing is not paused\n');
});

/** [S-pushpause-3] */
test('a pause whose time passed while nothing was mounted is over at the next mount', async () => {
  const { stdout } = await cfs('pause', '--for', '1ms');
  expect(stdout).toMatch(/^pushing is paused until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d; 0 changes wait\n$/);
  await mount.kill9();
  await mount.mount();
  expect((await mount.status())?.paused).toBeNull();
});

/** [S-limit-1] */
test('the limits of a running mount are shown and changed', async () => {
  expect((await cfs('limit')).stdout).toBe('up no limit, down no limit\n');
  expect((await cfs('limit', '--up', '2MiB')).stdout).toBe('up 2 MiB/s, down no limit\n');
  expect((await cfs('limit', '--up', 'off', '--down', '1MiB')).stdout).toBe('up no limit, down 1 MiB/s\n');
  expect((await mount.status())?.limits).toEqual({ up: null, down: 1024 ** 2 });
  expect((await cfs('log')).stdout).toContain('limited: up no limit, down 1 MiB/s\n');
});
