import { constants } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SyncedTower } from '../harness/synced-tower.ts';
import { MODEL_ROOT } from './model-service.ts';

const { O_APPEND, O_CREAT, O_TRUNC, O_WRONLY } = constants;
const MINUTE_MS = 60_000;

let world: SyncedTower;
beforeEach(async () => {
  world = await SyncedTower.build();
});
afterEach(() => world.close());

const versionsOf = (name: string): string[] => {
  const found = world.service.childrenOf(MODEL_ROOT).find((child) => child.name === name);
  return (found?.versions ?? []).map(({ bytes }) => bytes.toString());
};

test('a logger that never closes its file is with the service within six minutes, in at most three versions', async () => {
  const fd = await world.mount.open('log', O_WRONLY | O_CREAT | O_APPEND);
  let written = '';
  for (let second = 0; second < 6 * 60; second += 2) {
    const line = Buffer.from(`second ${second}\n`);
    await world.mount.write(fd, written.length, line);
    written += line.toString();
    await world.pass(2_000);
  }

  const [newest, ...older] = versionsOf('log');
  expect(newest?.length).toBeGreaterThan(written.length / 2);
  expect(written.startsWith(newest ?? 'nothing')).toBe(true);
  expect(older.length).toBeLessThanOrEqual(2);
  expect((await world.mount.readFile('log')).toString()).toBe(written);

  await world.mount.close(fd);
  await world.converge();
  expect(versionsOf('log')[0]).toBe(written);
});

test('a copy that stalls is not pushed by halves', async () => {
  const fd = await world.mount.open('copy', O_WRONLY | O_CREAT);
  await world.mount.write(fd, 0, Buffer.from('the first half, '));
  for (let at = 0; at < 4 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('copy')).toEqual([]);

  await world.mount.write(fd, 16, Buffer.from('the second half'));
  await world.mount.close(fd);
  await world.converge();

  expect(versionsOf('copy')).toEqual(['the first half, the second half']);
});

test('a copy over an older version that stalls is not pushed by halves either', async () => {
  await world.mount.writeFile('copy', Buffer.from('the older version'));
  await world.converge();
  const fd = await world.mount.open('copy', O_WRONLY | O_TRUNC);
  await world.mount.write(fd, 0, Buffer.from('the first half, '));
  for (let at = 0; at < 4 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('copy')).toEqual(['the older version']);

  await world.mount.write(fd, 16, Buffer.from('the second half'));
  await world.mount.close(fd);
  await world.converge();

  expect(versionsOf('copy')).toEqual(['the first half, the second half', 'the older version']);
});

test('a file that stays open goes when it has been idle, and again five minutes later, not before', async () => {
  await world.mount.writeFile('base', Buffer.from('one'));
  await world.converge();
  const fd = await world.mount.open('base', O_WRONLY);
  await world.mount.write(fd, 0, Buffer.from('two'));
  for (let at = 0; at < 20_000; at += 5_000) await world.pass(5_000);
  expect(versionsOf('base')).toEqual(['one']);
  for (let at = 0; at < 30_000; at += 5_000) await world.pass(5_000);
  expect(versionsOf('base')).toEqual(['two', 'one']);

  await world.mount.write(fd, 0, Buffer.from('three'));
  for (let at = 0; at < 3 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('base')).toEqual(['two', 'one']);
  for (let at = 0; at < 3 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('base')).toEqual(['three', 'two', 'one']);

  await world.mount.close(fd);
  await world.converge();
  expect(versionsOf('base')).toEqual(['three', 'two', 'one']);
  expect((await world.mount.readFile('base')).toString()).toBe('three');
});

test('what was fsynced goes although it was never closed', async () => {
  const fd = await world.mount.open('database', O_WRONLY | O_CREAT);
  await world.mount.write(fd, 0, Buffer.from('a page'));
  await world.mount.fsync(fd);
  for (let at = 0; at < 10_000; at += 2_000) await world.pass(2_000);

  expect(versionsOf('database')).toEqual(['a page']);
  expect(world.sync.status().pending).toBe(0);
  await world.mount.close(fd);
});
