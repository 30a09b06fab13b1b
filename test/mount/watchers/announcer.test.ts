import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect } from 'vitest';
import { programBesideAddon } from '../../../src/base/native.ts';
import { Announcer, type CallFields } from '../../../src/mount/watchers/announcer.ts';
import { testUnless } from '../../harness/requirement.ts';

const program = programBesideAddon('cfs-announcer');
const missing = program === null ? 'the announcer, built by a C compiler' : null;

let home: string;
let announcer: Announcer;
let ends: string[];

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'cfs-announcer-'));
  mkdirSync(join(home, 'other'));
  writeFileSync(join(home, 'x'), 'x');
  ends = [];
  const own = ends;
  if (program !== null) announcer = new Announcer(program, () => own.push('end'));
});
afterEach(() => {
  announcer?.kill();
  rmSync(home, { recursive: true });
});

function deviceOf(path: string): string {
  const { dev } = statSync(path);
  return `${Math.floor(dev / 256) % 4096}:${(dev % 256) + Math.floor(dev / 2 ** 20) * 256}`;
}

const call = (op: string, folder: { device?: string; ino?: number }, name2 = ''): CallFields => {
  const other = join(home, 'other');
  const { device = deviceOf(home), ino = statSync(home).ino } = folder;
  return [op, device, home, ino, 'x', other, name2 === 'wrong' ? 1 : statSync(other).ino, name2, '5.000000007'];
};

/** [S-notify-3] */
testUnless(missing)('the announcer changes nothing in another folder than the one that it is given', async () => {
  for (const op of ['unlink', 'mknod', 'touch', 'rename'])
    for (const folder of [{ device: '0:1' }, { ino: 1 }])
      expect(await announcer.perform(call(op, folder))).toBe(constants.errno.ESTALE);
  expect(await announcer.perform(call('rename', {}, 'wrong'))).toBe(constants.errno.ESTALE);
  expect(existsSync(join(home, 'x'))).toBe(true);

  expect(await announcer.perform(call('touch', {}))).toBe(0);
  expect(statSync(join(home, 'x')).mtimeMs).toBe(5000.000007);
  expect(await announcer.perform(call('mknod', {}))).toBe(constants.errno.EEXIST);
  expect(await announcer.perform(call('rename', {}, 'y'))).toBe(0);
  expect(existsSync(join(home, 'other', 'y'))).toBe(true);
});

testUnless(missing)('a call of an announcer that ends is not answered as made', async () => {
  process.kill(announcer.pid as number, 'SIGSTOP');
  const performed = announcer.perform(call('unlink', {}));
  announcer.kill();

  expect(await performed).toBe(-1);
  expect([ends, announcer.pid, await announcer.perform(call('unlink', {}))]).toEqual([['end'], null, -1]);
  expect(existsSync(join(home, 'x'))).toBe(true);
});
