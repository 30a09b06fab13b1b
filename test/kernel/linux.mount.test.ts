import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { PAYLOAD_BYTES_MAX } from '../../src/kernel/kernel-addon.ts';
import { mountOn } from '../../src/kernel/mount-table.ts';
import { MASKABLE_FEATURES } from '../../src/kernel/negotiation.ts';
import { inMountNamespace } from '../harness/mount-namespace.ts';
import { missingFuseControl, missingRoot, testUnless } from '../harness/requirement.ts';
import { MountDriver, makeMountPoint, run, script, shell, started } from './mount-driver.ts';

const drivers: MountDriver[] = [];

async function mounted(options?: Parameters<typeof MountDriver.start>[0]): Promise<MountDriver> {
  const driver = await MountDriver.start(options);
  drivers.push(driver);
  return driver;
}

afterEach(async () => {
  for (const driver of drivers.splice(0)) await driver.stop();
});

/** As in /proc/PID/stat (proc(5)); D: waits in the kernel, and cannot be killed. */
function statesOfThreads(pid: number): string[] {
  const folder = `/proc/${pid}/task`;
  return readdirSync(folder).map((id) => /\) (.) /.exec(readFileSync(join(folder, id, 'stat'), 'latin1'))?.[1] ?? '');
}

/** Asks for one name after the other, until it hears something else than that there is none. */
const ASKING_ON = `
  process.chdir(process.argv[1]);
  for (let i = 0, code = 'ENOENT'; code === 'ENOENT'; i++)
    try { require('fs').statSync(String(i)) } catch (error) { ({ code } = error); if (code !== 'ENOENT') console.log(code) }
`;

/** What programs do first; each line says what it must print. */
const SMOKE = `
  const p = (name) => path.join(D, name), out = [];
  const say = (value) => out.push(value);
  fs.mkdirSync(p('d')); fs.mkdirSync(p('d/e'));
  fs.writeFileSync(p('d/f'), 'hello'); say(fs.readFileSync(p('d/f'), 'utf8'));
  fs.appendFileSync(p('d/f'), ' again'); say(fs.readFileSync(p('d/f'), 'utf8'));
  const big = Buffer.alloc(3_000_001, 'abcdefg'); fs.writeFileSync(p('big'), big); say(fs.readFileSync(p('big')).equals(big));
  fs.writeFileSync(p('big'), 'short'); say(fs.readFileSync(p('big'), 'utf8'));
  fs.truncateSync(p('big'), 2); say(fs.statSync(p('big')).size);
  const fd = fs.openSync(p('big'), 'r+'); fs.ftruncateSync(fd, 10); fs.writeSync(fd, 'X', 9); fs.fsyncSync(fd); fs.fdatasyncSync(fd); say(fs.fstatSync(fd).size); fs.closeSync(fd);
  say(fs.readFileSync(p('big')).toString('hex'));
  fs.symlinkSync('d/f', p('l')); say(fs.readlinkSync(p('l'))); say(fs.readFileSync(p('l'), 'utf8')); say(fs.lstatSync(p('l')).isSymbolicLink());
  fs.chmodSync(p('d/f'), 0o640); say(fs.statSync(p('d/f')).mode & 0o7777);
  fs.utimesSync(p('d/f'), 1.5, 2.25); const st = fs.statSync(p('d/f'), { bigint: true }); say(String(st.atimeNs)); say(String(st.mtimeNs));
  fs.renameSync(p('d/f'), p('d/g')); say(fs.existsSync(p('d/f'))); say(fs.readdirSync(p('d')).sort().join());
  say(errno(() => fs.rmdirSync(p('d')))); say(errno(() => fs.unlinkSync(p('d')))); say(errno(() => fs.mkdirSync(p('d'))));
  say(errno(() => fs.linkSync(p('big'), p('hard')))); say(errno(() => fs.openSync(p('big'), 'wx'))); say(errno(() => fs.statSync(p('none'))));
  say(errno(() => fs.writeFileSync(p('n'.repeat(256)), ''))); say(errno(() => fs.readFileSync(p('d'))));
  const hole = fs.openSync(p('sparse'), 'w+'); fs.writeSync(hole, 'end', 5 * 2 ** 30); const four = Buffer.alloc(4); fs.readSync(hole, four, 0, 4, 5 * 2 ** 30 - 1); say(four.toString('latin1')); say(fs.fstatSync(hole).size); fs.closeSync(hole);
  const gone = fs.openSync(p('gone'), 'w+'); fs.unlinkSync(p('gone')); fs.writeSync(gone, 'kept', 0); fs.readSync(gone, four, 0, 4, 0); say(four.toString()); say(fs.fstatSync(gone).nlink); fs.closeSync(gone);
  fs.writeFileSync(p('Füße 日本 😀'), 'u'); say(fs.readdirSync(D).includes('Füße 日本 😀'));
  const fsStat = fs.statfsSync(D, { bigint: true }); say(String(fsStat.blocks * fsStat.bsize));
  const many = p('many'); fs.mkdirSync(many); for (let i = 0; i < 300; i++) fs.writeFileSync(path.join(many, 'file-' + i), ''); say(new Set(fs.readdirSync(many)).size);
  say(fs.readdirSync(many, { withFileTypes: true }).every((e) => e.isFile()));
  fs.rmSync(many, { recursive: true }); say(fs.existsSync(many));
  say(errno(() => fs.renameSync(p('d'), p('d/e/inside')))); fs.copyFileSync(p('sparse').replace('sparse', 'd/g'), p('copy')); say(fs.readFileSync(p('copy'), 'utf8'));
  return out;
`;

const SMOKE_EXPECTED = [
  ...['hello', 'hello again', true, 'short', 2, 10, '73680000000000000058', 'd/f', 'hello again', true],
  ...[0o640, '1500000000', '2250000000', false, 'e,g', 'ENOTEMPTY', 'EISDIR', 'EEXIST', 'EPERM', 'EEXIST', 'ENOENT'],
  ...[
    'ENAMETOOLONG',
    'EISDIR',
    '\0end',
    5 * 2 ** 30 + 3,
    'kept',
    0,
    true,
    String(2n ** 52n),
    300,
    true,
    false,
    'EINVAL',
    'hello again',
  ],
];

describe('what programs do', () => {
  test('works, and everything is given back at the end', async () => {
    const driver = await mounted();

    expect(await script(driver.directory, SMOKE)).toEqual(SMOKE_EXPECTED);
    await driver.until(({ openHandles }) => openHandles === 0, 'all handles are released');
    const { binding } = await driver.state();
    expect(binding.freeSmallSlots).toBe(256);
    expect(binding.pendingOperations).toBe(0);
    await driver.do({ do: 'unmount', how: 'orderly' });

    expect(await driver.ended).toEqual({ how: 'unmounted', destroyed: true });
    expect(await driver.exited).toBe(0);
    expect(mountOn(driver.directory)).toBeNull();
  });

  const maskings = [...MASKABLE_FEATURES.map((name) => [name]), MASKABLE_FEATURES];
  test.each(maskings.map((masked) => ({ name: masked.join(), masked })))('works without $name', async ({ masked }) => {
    const driver = await mounted({ mount: { maskedFeatures: masked } });

    expect(await script(driver.directory, SMOKE)).toEqual(SMOKE_EXPECTED);
    const { features } = await driver.state();
    expect(features.filter((name) => masked.includes(name as (typeof masked)[number]))).toEqual([]);
  });

  test('works when every answer comes later', async () => {
    const driver = await mounted();
    for (const op of [
      'lookup',
      'getattr',
      'setattr',
      'open',
      'create',
      'read',
      'write',
      'readdir',
      'mkdir',
      'unlink',
      'flush',
    ]) {
      await driver.do({ do: 'rule', op, effect: 'later' });
    }

    expect(await script(driver.directory, SMOKE)).toEqual(SMOKE_EXPECTED);
    const state = await driver.until(({ openHandles }) => openHandles === 0, 'all handles are released');
    expect(state.binding.freeSmallSlots).toBe(256);
    expect(state.binding.freeLargeSlots).toBe(32);
  });

  test('the kernel asks for no more at once than fits into a reply, whatever its pages are', async () => {
    const driver = await mounted();

    const line = readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .find((each) => each.includes(` ${driver.directory} `));
    expect(/max_read=(\d+)/.exec(line ?? '')?.[1]).toBe(String(PAYLOAD_BYTES_MAX));
  });

  test('behind the end nothing is read, however far that is, and whether the kernel looks at the size or not', async () => {
    const driver = await mounted({ fileSystem: { directIo: true } });

    const readAt = `fs.writeFileSync(D + '/f', 'abc'); const fd = fs.openSync(D + '/f', 'r');
      return [3n, 2n ** 53n, 2n ** 62n].map((at) => { try { return fs.readSync(fd, Buffer.alloc(10), 0, 10, at) } catch (e) { return e.code } })`;

    expect(await script(driver.directory, readAt)).toEqual([0, 0, 0]);
  });

  test('a mapping outlives its descriptor, and what it wrote is in the file', async () => {
    const driver = await mounted();
    const program = `
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
  if (ftruncate(fd, 8192)) return 1;
  char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return 2;
  close(fd);
  strcpy(map + 4000, "written through a mapping");
  if (msync(map, 8192, MS_SYNC)) return 3;
  return munmap(map, 8192);
}`;
    const folder = mkdtempSync(join(tmpdir(), 'cfs-mmap-'));
    writeFileSync(join(folder, 'map.c'), program);

    await shell(`cd ${folder}; cc -w -o map map.c; ./map ${driver.path('mapped')}`);

    expect(await shell(`tail -c +4001 ${driver.path('mapped')} | head -c 25`)).toBe('written through a mapping');
    rmSync(folder, { recursive: true });
  });

  test('extended attributes are kept, and what is not offered is refused at once', async () => {
    const driver = await mounted();
    const folder = mkdtempSync(join(tmpdir(), 'cfs-xattr-'));
    const program = `
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#define SAY(call) do { long r = (call); printf("%ld ", r < 0 ? (long)-errno : r); } while (0)
int main(int argc, char **argv) {
  static char big[60000], back[60000];
  memset(big, 'v', sizeof big);
  int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
  SAY(fsetxattr(fd, "user.a", "1234", 4, 0));
  SAY(fgetxattr(fd, "user.a", back, 2));
  SAY(fgetxattr(fd, "user.a", NULL, 0));
  SAY(fsetxattr(fd, "user.a", "x", 1, XATTR_CREATE));
  SAY(fsetxattr(fd, "user.b", big, sizeof big, XATTR_CREATE));
  SAY(fgetxattr(fd, "user.b", back, sizeof back));
  SAY(memcmp(big, back, sizeof big) == 0);
  SAY(flistxattr(fd, back, sizeof back));
  SAY(fremovexattr(fd, "user.a"));
  SAY(fgetxattr(fd, "user.a", back, 10));
  SAY(fgetxattr(fd, "security.capability", back, 10));
  SAY(fgetxattr(fd, "system.posix_acl_access", back, 10));
  SAY(mknod(argv[2], S_IFCHR | 0644, 0));
  return 0;
}`;
    writeFileSync(join(folder, 'x.c'), program);

    await shell(`cd ${folder}; cc -w -o x x.c`);
    const said = await shell(`${folder}/x ${driver.path('f')} ${driver.path('device')}`);

    // 34 ERANGE, 17 EEXIST, 61 ENODATA, 95 EOPNOTSUPP, 1 EPERM
    expect(said.trim()).toBe('0 -34 4 -17 0 60000 1 14 0 -61 -95 -95 -1');
    rmSync(folder, { recursive: true });
  });
});

describe('failures of the file system', () => {
  test.each(['throw', 'reject'] as const)(
    'an exception (%s) is EIO for the caller, and the mount lives',
    async (effect) => {
      const driver = await mounted({ logLevel: 'warn' });
      await shell(`echo here > ${driver.path('f')}`);
      await driver.do({ do: 'rule', op: 'mkdir', effect });
      await driver.do({ do: 'rule', op: 'read', effect });

      const said = await script(
        driver.directory,
        `return [errno(() => fs.mkdirSync(D + '/x')), errno(() => fs.readFileSync(D + '/f'))]`,
      );

      expect(said).toEqual(['EIO', 'EIO']);
      expect(driver.log).toMatch(/"op":"mkdir".*"operation failed"/);
      await driver.do({ do: 'release' });
      expect(await shell(`cat ${driver.path('f')}`)).toBe('here\n');
    },
  );

  test('what does not answer in time is ETIMEDOUT, and its late answer is taken back', async () => {
    const driver = await mounted({ deadlineMs: 300 });
    await driver.do({ do: 'plant', parent: 1, name: 'slow', text: 'x' });
    await driver.do({ do: 'rule', op: 'lookup', name: 'slow', effect: 'hang' });

    expect(await script(driver.directory, `return errno(() => fs.statSync(D + '/slow'))`)).toBe('ETIMEDOUT');
    await driver.do({ do: 'release' });

    await driver.until(({ lookups }) => lookups === 0, 'the late lookup is taken back');
  });
});

describe('callers that wait', () => {
  /** Readers of a file, the reader of a folder and a busy folder: none of it may hold up the rest. */
  test('eight hanging reads and a hanging listing hold up neither others nor notifications, and can be killed', async () => {
    const driver = await mounted({ fileSystem: { entryTimeoutMs: 600_000, attributeTimeoutMs: 600_000 } });
    const slow = (await driver.do({ do: 'plant', parent: 1, name: 'slow', text: 'slow' })) as number;
    const folder = (await driver.do({ do: 'plant-folder', parent: 1, name: 'folder' })) as number;
    const other = (await driver.do({ do: 'plant-folder', parent: 1, name: 'other' })) as number;
    for (let i = 0; i < 1000; i++) await driver.do({ do: 'plant', parent: other, name: `n${i}`, text: String(i) });
    await shell(`ls -l ${driver.path('other')} > /dev/null; ls -d ${driver.path('folder')}`);
    await driver.do({ do: 'rule', op: 'read', ino: slow, effect: 'hang' });
    await driver.do({ do: 'rule', op: 'readdir', ino: folder, effect: 'hang' });
    const readers = Array.from({ length: 8 }, (_, i) =>
      started('dd', [`if=${driver.path('slow')}`, 'bs=4', ...(i % 2 === 0 ? ['iflag=direct'] : [])]),
    );
    const lister = started('ls', [driver.path('folder')]);
    // Those that read through the page cache share one request.
    await driver.until(({ hanging }) => hanging >= 6, 'all callers hang');

    await driver.do({ do: 'invalidate-inode', ino: slow });
    await driver.do({ do: 'invalidate-entry', parent: folder, name: 'whatever' });
    for (let i = 0; i < 1000; i++) {
      await driver.do({ do: 'plant', parent: other, name: `n${i}`, text: `changed ${i}` });
      await driver.do({ do: 'invalidate-entry', parent: other, name: `n${i}` });
    }
    await driver.until(
      ({ binding }) => binding.notificationsWritten + binding.notificationsUnknown >= 1000,
      'all are told',
    );
    expect(
      await shell(
        `cat ${driver.path('other/n999')}; echo new > ${driver.path('other/new')}; cat ${driver.path('other/new')}`,
      ),
    ).toBe('changed 999new\n');
    // Killed while their answers are held: they do not wait for them.
    for (const { child } of [...readers, lister]) child.kill('SIGKILL');
    for (const { finished } of [...readers, lister]) expect((await finished).signal).toBe('SIGKILL');

    await driver.do({ do: 'release' });
    const state = await driver.until(({ binding }) => binding.notificationsWaiting === 0, 'nothing waits');
    expect(state.binding.pendingOperations).toBe(0);
  });

  test('[S-fresh-4] a caller that waits for invalidations waits for those that a hanging lookup blocks, but not permanently', async () => {
    const driver = await mounted();
    const folder = (await driver.do({ do: 'plant-folder', parent: 1, name: 'folder' })) as number;
    await shell(`ls -d ${driver.path('folder')}`);
    await driver.do({ do: 'rule', op: 'lookup', name: 'slow', effect: 'hang' });
    const looker = started('ls', [driver.path('folder/slow')]);
    await driver.until(({ hanging }) => hanging > 0, 'the lookup hangs');
    await driver.do({ do: 'invalidate-entry', parent: folder, name: 'slow' });

    expect(await driver.do({ do: 'told' })).toBe(1);
    const told = driver.do({ do: 'told' });
    await driver.do({ do: 'release' });
    expect(await told).toBe(0);
    await looker.finished;
  });

  test('a thousand reads that wait hold no slots, and known answers still come at once', async () => {
    const driver = await mounted();
    await driver.do({ do: 'plant', parent: 1, name: 'quick', text: 'quick' });
    const slow = (await driver.do({ do: 'plant', parent: 1, name: 'slow', text: 'slow' })) as number;
    await driver.do({ do: 'rule', op: 'read', ino: slow, effect: 'hang' });
    const readers = started('sh', [
      '-c',
      `UV_THREADPOOL_SIZE=1000 exec ${process.execPath} -e '
        const fs = require("fs"), fd = fs.openSync("${driver.path('slow')}", fs.constants.O_RDONLY | fs.constants.O_DIRECT);
        let n = 0; for (let i = 0; i < 1000; i++) fs.read(fd, Buffer.alloc(4), 0, 4, 0, (e, r) => { if (e) throw e; if (r === 4 && ++n === 1000) console.log("all") })'`,
    ]);

    const state = await driver.until(({ hanging }) => hanging >= 1000, 'a thousand hang');

    expect(state.binding.freeSmallSlots).toBe(256);
    expect(await shell(`cat ${driver.path('quick')}`, 20_000)).toBe('quick');
    await driver.do({ do: 'release' });
    expect((await readers.finished).stdout).toBe('all\n');
  });

  test('a thousand writes that wait hold a set amount of memory, and known answers still come at once', async () => {
    const driver = await mounted();
    await driver.do({ do: 'plant', parent: 1, name: 'quick', text: 'quick' });
    await driver.do({ do: 'rule', op: 'write', effect: 'hang' });
    const writers = started('sh', [
      '-c',
      `UV_THREADPOOL_SIZE=300 exec ${process.execPath} -e '
        const fs = require("fs"); let n = 0;
        for (let i = 0; i < 300; i++) fs.writeFile("${driver.path('w')}" + i, Buffer.alloc(4096), (e) => { if (e) throw e; if (++n === 300) console.log("all") })'`,
    ]);

    await driver.until(({ hanging }) => hanging >= 300, 'three hundred hang');

    expect(await shell(`cat ${driver.path('quick')}`, 20_000)).toBe('quick');
    await driver.do({ do: 'release' });
    expect((await writers.finished).stdout).toBe('all\n');
    const { binding } = await driver.state();
    expect(binding.freeSmallSlots).toBe(256);
    expect(binding.freeLargeSlots).toBe(32);
  });

  test('callers that ask without a pause do not hold up answers that come later', async () => {
    const driver = await mounted({ fileSystem: { attributeTimeoutMs: 0 } });
    await driver.do({ do: 'plant', parent: 1, name: 'asked', text: '' });
    await driver.do({ do: 'plant', parent: 1, name: 'later', text: 'later' });
    await driver.do({ do: 'rule', op: 'open', effect: 'later' });
    const askers = [1, 2].map(() =>
      started(process.execPath, [
        '-e',
        `const fs = require('fs'); for (let n = 0; !fs.existsSync('${driver.directory}/stop'); n++) for (let i = 0; i < 1000; i++) fs.statSync('${driver.path('asked')}')`,
      ]),
    );
    const before = (await driver.state()).operations.getattr ?? 0;
    await driver.until(({ operations }) => (operations.getattr ?? 0) > before + 2000, 'they ask');

    const texts = await script<string>(
      driver.directory,
      `let all = ''; for (let i = 0; i < 50; i++) all += fs.readFileSync(D + '/later'); return all`,
    );

    expect(texts).toBe('later'.repeat(50));
    // Half a millisecond a turn, tens of answers; a turn that is never given back answers hundreds of thousands.
    expect((await driver.state()).begunMeanwhile).toBeLessThan(20_000);
    await driver.do({ do: 'plant', parent: 1, name: 'stop', text: '' });
    await driver.do({ do: 'invalidate-entry', parent: 1, name: 'stop' });
    for (const asker of askers) expect((await asker.finished).stderr).toBe('');
  });

  test('what was closed before is known to be closed', async () => {
    const driver = await mounted();
    await driver.do({ do: 'plant', parent: 1, name: 'f', text: 'x' });
    // Handles that only read: their close(2) does not even wait for FLUSH.
    const client = spawn(
      process.execPath,
      [
        '-e',
        `const fs = require('fs'), all = []; for (let i = 0; i < 500; i++) all.push(fs.openSync('${driver.path('f')}'));
        process.on('message', () => { for (const fd of all) fs.closeSync(fd); process.send('closed', () => process.disconnect()) }); process.send('open')`,
      ],
      { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
    );
    await once(client, 'message');
    expect((await driver.state()).openHandles).toBe(500);
    const busy = driver.do({ do: 'busy-worker', ms: 700 });
    client.send('close');
    await once(client, 'message');

    const openHandles = await driver.do({ do: 'caught-up' });

    expect(openHandles).toBe(0);
    await busy;
  });

  test('a main thread that is busy does not hold up the mount', async () => {
    const driver = await mounted();
    const done = `${driver.directory}.done`;
    let isBusy = true;
    const busy = driver.do({ do: 'busy-main', ms: 60_000, orUntil: done }).then(() => {
      isBusy = false;
    });

    await script(
      driver.directory,
      `for (let i = 0; i < 50; i++) { fs.writeFileSync(D + '/a', 'x'); fs.renameSync(D + '/a', D + '/b'); fs.unlinkSync(D + '/b') } return null`,
    );

    expect(isBusy).toBe(true);
    writeFileSync(done, '');
    await busy;
    rmSync(done);
  });
});

describe('coming and going', () => {
  test('a mount that is unmounted from outside ends in order', async () => {
    const driver = await mounted();

    await shell(`fusermount3 -u ${driver.directory}`);

    expect(await driver.ended).toEqual({ how: 'unmounted', destroyed: true });
    expect(await driver.exited).toBe(0);
  });

  // Aborted: a file that is open there was not closed, as one is that the kernel has let go of at the end.
  testUnless(missingRoot())('another mount namespace that has it does not hold up its end', async () => {
    const driver = await mounted();
    const script = `echo there; exec sleep 300 > ${driver.path('open')}`;
    const [unshare = '', ...words] = inMountNamespace(script, driver.directory);
    const holder = started(unshare, words);
    await new Promise((resolve) => holder.child.stdout?.once('data', resolve));

    await driver.do({ do: 'unmount', how: 'orderly' });

    expect(await driver.ended).toMatchObject({ how: 'aborted' });
    holder.child.kill('SIGKILL');
    await holder.finished;
  });

  test('a busy mount is not unmounted in order, but lazily', async () => {
    const driver = await mounted();
    await shell(`echo x > ${driver.path('f')}`);
    const user = started('sh', ['-c', `exec 3< ${driver.path('f')}; echo open; exec sleep 60`]);
    await new Promise((resolve) => user.child.stdout?.once('data', resolve));

    await expect(driver.do({ do: 'unmount', how: 'orderly' })).rejects.toThrow('EBUSY');
    expect(mountOn(driver.directory)).not.toBeNull();
    await driver.do({ do: 'unmount', how: 'lazily' });
    await driver.do({ do: 'unmount', how: 'lazily' }); // once more: nothing happens

    expect(mountOn(driver.directory)).toBeNull();
    expect((await driver.state()).openHandles).toBe(1);
    user.child.kill('SIGKILL');
    expect(await driver.ended).toEqual({ how: 'unmounted', destroyed: true });
  });

  testUnless(missingRoot())('what is mounted over it, or in its place, is not taken away with it', async () => {
    const driver = await mounted();
    await shell(`mount -t tmpfs over ${driver.directory}`);
    try {
      await expect(driver.do({ do: 'unmount', how: 'orderly' })).rejects.toThrow('EBUSY');
      await driver.do({ do: 'unmount', how: 'lazily' });

      expect(mountOn(driver.directory)?.source).toBe('over');
    } finally {
      await run('umount', [driver.directory]);
    }
    await driver.do({ do: 'unmount', how: 'orderly' });
    expect(await driver.ended).toEqual({ how: 'unmounted', destroyed: true });
  });

  // Otherwise what is tested above is aborted, where another test has a namespace for ten seconds.
  testUnless(missingRoot())('a mount namespace of tests lets go of what another mount lies over', async () => {
    const driver = await mounted();
    await shell(`mount -t tmpfs over ${driver.directory}`);
    try {
      const [unshare = '', ...words] = inMountNamespace('cat /proc/self/mounts', null);

      expect((await run(unshare, words)).stdout).not.toContain(driver.directory);
    } finally {
      await run('umount', [driver.directory]);
    }
  });

  test('a mount that was detached, and in which a file is open, is in use: its end is not waited for', async () => {
    const driver = await mounted();
    await shell(`echo x > ${driver.path('f')}`);
    const user = started('sh', ['-c', `exec 3< ${driver.path('f')}; echo open; exec sleep 60`]);
    await new Promise((resolve) => user.child.stdout?.once('data', resolve));
    await shell(`fusermount3 -uz ${driver.directory}`);

    await expect(driver.do({ do: 'unmount', how: 'orderly' })).rejects.toThrow('EBUSY');

    user.child.kill('SIGKILL');
    expect(await driver.ended).toEqual({ how: 'unmounted', destroyed: true });
  });

  test('a mount whose folder was moved is found where it lies now', async () => {
    const own = makeMountPoint(); // a folder of this test's own, which may be moved
    mkdirSync(join(own, 'before/mnt'), { recursive: true });
    const driver = await mounted({ mount: { directory: join(own, 'before/mnt') } });
    try {
      await shell(`mv ${join(own, 'before')} ${join(own, 'after')}`);

      await driver.do({ do: 'unmount', how: 'orderly' });

      expect(await driver.ended).toEqual({ how: 'unmounted', destroyed: true });
    } finally {
      await run('fusermount3', ['-uzq', join(own, 'after/mnt')]);
      rmSync(own, { recursive: true });
    }
  });

  test('a dead mount of ours is detached at the next start', async () => {
    const first = await mounted();
    first.process.kill('SIGKILL');
    await first.exited;
    expect((await run('stat', [first.directory])).stderr).toMatch(/not connected/);

    const second = await mounted({ mount: { directory: first.directory } });

    expect(await shell(`echo x > ${second.path('f')}; cat ${second.path('f')}`)).toBe('x\n');
  });

  test('so is one of which the kernel still has the attributes', async () => {
    const first = await mounted({ fileSystem: { attributeTimeoutMs: 300_000 } });
    await shell(`stat ${first.directory}`);
    first.process.kill('SIGKILL');
    await first.exited;
    expect((await run('stat', [first.directory])).code).toBe(0);

    const second = await mounted({ mount: { directory: first.directory } });

    expect(await shell(`echo x > ${second.path('f')}; cat ${second.path('f')}`)).toBe('x\n');
  });

  test('a Worker that is ended in the middle closes the connection: nobody hangs', async () => {
    const driver = await mounted();
    const slow = (await driver.do({ do: 'plant', parent: 1, name: 'slow', text: 'slow' })) as number;
    await driver.do({ do: 'rule', op: 'read', ino: slow, effect: 'hang' });
    const reader = started('cat', [driver.path('slow')]);
    await driver.until(({ hanging }) => hanging > 0, 'the reader hangs');

    await driver.do({ do: 'kill-worker' });

    expect((await reader.finished).stderr).toMatch(/abort|not connected/i);
    expect(await driver.exited).toBe(0);
  });

  test('a Worker that no longer answers is abandoned by the main thread: nobody hangs, the directory is free', async () => {
    const driver = await mounted();
    await shell(`echo x > ${driver.path('f')}`);
    await driver.do({ do: 'hang-worker' });
    const reader = started('stat', [driver.path('something-new')]);

    await driver.do({ do: 'abandon' });

    expect((await reader.finished).code).toBe(1);
    expect(mountOn(driver.directory)).toBeNull();
    driver.process.kill('SIGKILL');
  });

  test.skipIf(missingRoot() !== null).each([
    ['lies over it', 'stays'],
    ['lies in its place', 'is taken away first'],
  ])('another mount that %s is left alone when it is abandoned (needs: root)', async (_where, own) => {
    const other = await mounted();
    await shell(`echo x > ${other.path('f')}`);
    const driver = await mounted();
    await driver.do({ do: 'hang-worker' });
    if (own !== 'stays') await shell(`fusermount3 -uz ${driver.directory}`);
    await shell(`mount --bind ${other.directory} ${driver.directory}`);
    try {
      await driver.do({ do: 'abandon' });

      expect(await run('cat', [other.path('f')])).toMatchObject({ code: 0, stdout: 'x\n' });
      expect(mountOn(driver.directory)).toMatchObject({ device: mountOn(other.directory)?.device });
    } finally {
      driver.process.kill('SIGKILL');
      await driver.exited;
      await run('umount', [driver.directory]);
    }
  });

  // Where that place is not mounted, only root can abort a connection (`abortConnection`).
  testUnless(missingRoot() && missingFuseControl())(
    'and when a notification waits for a folder that a caller has locked',
    async () => {
      const driver = await mounted();
      const reader = started(process.execPath, ['-e', ASKING_ON, driver.directory]);
      await driver.until(({ operations }) => (operations.lookup ?? 0) > 10, 'names are asked for');
      void driver.do({ do: 'busy-worker', ms: 1000 }).catch(() => undefined);
      // Right after that, in the same turn of its loop: nobody reads the request that has locked the folder.
      void driver.do({ do: 'invalidate-entry', parent: 1, name: 'x' }).catch(() => undefined);
      await driver.do({ do: 'hang-worker' });
      await expect.poll(() => statesOfThreads(driver.process.pid as number), { interval: 20 }).toContain('D');

      await driver.do({ do: 'abandon' });

      expect(await reader.finished).toMatchObject({
        code: 0,
        stdout: expect.stringMatching(/^(ECONNABORTED|ENOTCONN)\n$/),
      });
      expect(mountOn(driver.directory)).toBeNull();
      driver.process.kill('SIGKILL');
      await driver.exited;
    },
  );

  test('what cannot be mounted on is refused in one sentence', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'cfs-refused-'));
    const file = join(folder, 'file');
    const full = join(folder, 'full');
    writeFileSync(file, '');
    mkdirSync(full);
    writeFileSync(join(full, 'something'), '');
    const driver = await mounted();
    const refusal = (directory: string) =>
      MountDriver.start({ mount: { directory } }).then(
        () => 'mounted',
        (error: Error) => error.message.replaceAll(folder, ''),
      );

    expect(await refusal(join(folder, 'none'))).toBe('the mount point /none does not exist');
    expect(await refusal(file)).toBe('the mount point /file is not a directory');
    expect(await refusal(full)).toBe('the mount point /full is not empty');
    expect(await refusal(driver.directory)).toBe(`${driver.directory} is already mounted (cfs-test, fuse.cfs-test)`);
    rmSync(folder, { recursive: true });
  });

  test('a mount point that is not empty is covered when asked for', async () => {
    const directory = makeMountPoint();
    writeFileSync(join(directory, 'below'), '');

    const driver = await mounted({ mount: { directory, allowNonEmpty: true, readOnly: true } });

    expect(await script(driver.directory, `return [fs.readdirSync(D), errno(() => fs.mkdirSync(D + '/x'))]`)).toEqual([
      [],
      'EROFS',
    ]);
    await driver.stop();
    rmSync(directory, { recursive: true });
  });
});
