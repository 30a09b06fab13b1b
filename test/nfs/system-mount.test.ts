import { expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { checkNfs, mountCommand } from '../../src/nfs/system-mount.ts';

const EXPORT = { path: '/cfs-mount-0f', port: 4711 };
const OPTIONS = { directory: '/Users/ann/Cloud', readOnly: true, flags: ['nosuid', 'nodev'] };

test('on macOS the mount command is mount_nfs with its own words', () => {
  const { program, args } = mountCommand(EXPORT, OPTIONS, 'darwin');

  expect(program).toBe('mount_nfs');
  expect(args.slice(2)).toEqual(['127.0.0.1:/cfs-mount-0f', '/Users/ann/Cloud']);
  const words = args[1]?.split(',');
  expect(words).toEqual(expect.arrayContaining(['vers=3', 'locallocks', 'nfc', 'mutejukebox', 'port=4711', 'rdonly']));
  expect(words).toEqual(expect.arrayContaining(['mountport=4711', 'nosuid', 'nodev']));
});

test('on Linux the mount command needs no helper, and names address and ports', () => {
  const { program, args } = mountCommand(EXPORT, OPTIONS, 'linux');

  expect([program, ...args.slice(0, 3)]).toEqual(['mount', '-i', '-t', 'nfs']);
  const words = args[4]?.split(',');
  expect(words).toEqual(expect.arrayContaining(['addr=127.0.0.1', 'port=4711', 'mountport=4711', 'nolock', 'ro']));
});

test('an ordinary user on Linux is told to leave the option out, and on macOS may mount', () => {
  expect(() => checkNfs(1000, 'linux')).toThrow(UsageError);
  expect(() => checkNfs(0, 'linux')).not.toThrow();
  expect(() => checkNfs(501, 'darwin')).not.toThrow();
});
