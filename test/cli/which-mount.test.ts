import { once } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { findInMount } from '../../src/cli/commands/file-in-mount.ts';
import { mountAndPath } from '../../src/cli/commands/sync.ts';
import { ServiceWait } from '../../src/cli/service-wait.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { mountPathOf } from '../../src/mount/mount-point.ts';
import { chooseMount } from '../../src/mount/running-mounts.ts';
import { answeringMount } from './answering-mount.ts';
import { CommandHome } from './cli-harness.ts';

/** Which mount a path means, and what it is called there. */

let home: CommandHome;

beforeEach(() => {
  home = new CommandHome();
});

afterEach(() => home.dispose());

/** Accounts with these numbers, each mounted at a directory of this home. */
async function mounted(places: Readonly<Record<string, string>>): Promise<void> {
  for (const [userId, place] of Object.entries(places)) {
    const { name } = home.plantAccount({ userId, username: `user${userId}@example.com` });
    mkdirSync(home.path(place), { recursive: true });
    const locate = ({ path }: { readonly path: string | null }) =>
      ({ path: path ?? '', kind: 'file', sizeBytes: 0, resource: null, isPending: false }) as const;
    await answeringMount(home, { name, directory: home.path(place) }, { locate });
  }
}

async function meant(file: string): Promise<readonly [username: string, path: string | null]> {
  const { mount, path } = await mountAndPath(pathsOf(home.env), { file: home.path(file), account: null });
  return [mount.username, path];
}

test.each([
  ['17', '18'],
  ['18', '17'],
])('of mounts within each other the inner one is meant (%s in %s)', async (inner, outer) => {
  await mounted({ [outer]: 'Cloud', [inner]: 'Cloud/of work' });

  expect(await meant('Cloud/of work/plan')).toEqual([`user${inner}@example.com`, 'plan']);
  expect(await meant('Cloud/of work')).toEqual([`user${inner}@example.com`, null]);
  expect(await meant('Cloud/plan')).toEqual([`user${outer}@example.com`, 'plan']);
  expect(await meant('Cloud/of workers')).toEqual([`user${outer}@example.com`, 'of workers']);
});

test('a mount that closes every connection, for want of room, is there and does not answer', async () => {
  const { socketPath } = home.plantAccount();
  mkdirSync(dirname(socketPath), { recursive: true });
  const full = createServer((socket) => void socket.destroy()).listen(socketPath);
  await once(full, 'listening');
  try {
    await expect(mountAndPath(pathsOf(home.env), { file: null, account: null })).rejects.toThrow('does not answer');
  } finally {
    full.close();
  }
});

test('a link to the directory of a mount means that mount, also by several steps', async () => {
  await mounted({ 17: 'disk/Cloud', 18: 'elsewhere' });
  symlinkSync('disk/Cloud', home.path('Cloud'));
  symlinkSync(home.path('Cloud'), home.path('home/Cloud'));

  for (const link of ['Cloud', 'home/Cloud']) {
    expect(await meant(link)).toEqual(['user17@example.com', null]);
    expect(await meant(`${link}/letter`)).toEqual(['user17@example.com', 'letter']);
    const mount = await chooseMount(pathsOf(home.env), { directory: home.path(link), account: null });
    expect(mount.username).toBe('user17@example.com');
  }
});

test('a link into a mount means what it leads to, one within a mount is meant itself', async () => {
  await mounted({ 17: 'Cloud' });
  writeFileSync(home.path('Cloud/letter'), '');
  symlinkSync('Cloud/letter', home.path('into'));
  symlinkSync('/nowhere', home.path('Cloud/out'));
  symlinkSync('Cloud/gone', home.path('dangling'));

  expect(await meant('into')).toEqual(['user17@example.com', 'letter']);
  const wait = new ServiceWait({ clock: systemClock, warn: () => {} }, null);
  expect((await findInMount({ paths: pathsOf(home.env), wait }, home.path('into'))).place).toBe(
    home.path('Cloud/letter'),
  );
  expect(await meant('Cloud/out')).toEqual(['user17@example.com', 'out']);
  await expect(findInMount({ paths: pathsOf(home.env), wait }, home.path('dangling'))).rejects.toMatchObject({
    exitCode: exitCode('missing'),
  });
});

test('links that lead to each other lead nowhere', async () => {
  symlinkSync('two', home.path('one'));
  symlinkSync('one', home.path('two'));

  await expect(meant('one')).rejects.toMatchObject({ exitCode: exitCode('notMounted') });
});

test('what is mounted is not looked at to find its path', () => {
  symlinkSync('/proc', home.path('processes'));

  expect(mountPathOf('/proc')).toBe('/proc');
  expect(mountPathOf(home.path('processes'))).toBe('/proc');
});
