import { expect, test } from 'vitest';
import { NO_DASH_O_OPTIONS, readDashOOptions } from '../../src/mount/dash-o-options.ts';

test('the words that users of mount(8) know become options and flags of the mount', () => {
  expect(readDashOOptions(['ro,allow_other,uid=1000,gid=100,umask=077', 'nonempty,noatime,noexec'])).toEqual({
    options: { readOnly: 'true', allowOther: 'true', uid: '1000', gid: '100', umask: '077', nonempty: 'true' },
    mount: { flags: ['noatime', 'noexec'], fsname: null, autoUnmount: false },
    problem: null,
  });
});

test('the last word wins, and what holds anyway changes nothing', () => {
  expect(readDashOOptions(['ro,rw', 'default_permissions,defaults,subtype=cfs-mount']).options).toEqual({
    readOnly: 'false',
  });
  expect(readDashOOptions([]).mount).toEqual(NO_DASH_O_OPTIONS);
});

test('every option of the table is a word, for fstab(5) has no flags', () => {
  const { options } = readDashOOptions(['settle=5s,cache-size=1GiB,read-only,log-file=/var/log/a\\,b']);

  expect(options).toEqual({ settleMs: '5s', cacheBytes: '1GiB', readOnly: 'true', logFile: '/var/log/a,b' });
});

test('what mount.fuse3 adds when root mounts is taken and changes nothing', () => {
  expect(readDashOOptions(['rw,dev,suid'])).toEqual({
    options: { readOnly: 'false' },
    mount: NO_DASH_O_OPTIONS,
    problem: null,
  });
});

test('a source may have commas and signs of equality in it', () => {
  expect(readDashOOptions([String.raw`fsname=a\,b=c\\d,auto_unmount`]).mount).toEqual({
    flags: [],
    fsname: String.raw`a,b=c\d`,
    autoUnmount: true,
  });
});

test.each(['suidd', 'settle', 'frobnicate', 'uid', 'ro=1', 'subtype=other', 'fsname='])('%s is refused', (word) => {
  expect(readDashOOptions([`noatime,${word}`]).problem).toContain(`-o: unknown: ${word} (known: ro, rw,`);
});
