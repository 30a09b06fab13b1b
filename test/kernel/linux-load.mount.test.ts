import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { tellFigures } from '../harness/figures.ts';
import { placeOnDisk } from '../harness/ground.ts';
import { inMountNamespace } from '../harness/mount-namespace.ts';
import { missingForOtherUsers, missingMtab, missingRoot, testUnless, titled } from '../harness/requirement.ts';
import type { Held } from './cycle-host.ts';
import { compiledSources, MountDriver, makeMountPoint, run, script, shell, started } from './mount-driver.ts';

const drivers: MountDriver[] = [];
const folders: string[] = [];

async function mounted(options?: Parameters<typeof MountDriver.start>[0]): Promise<MountDriver> {
  const driver = await MountDriver.start(options);
  drivers.push(driver);
  return driver;
}

function folder(): string {
  const made = mkdtempSync(join(placeOnDisk(), 'cfs-kernel-load-'));
  folders.push(made);
  return made;
}

afterEach(async () => {
  for (const driver of drivers.splice(0)) await driver.stop();
  for (const made of folders.splice(0)) rmSync(made, { recursive: true, force: true });
});

const digestOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

test('two hundred mounts in one process leave no descriptor, no thread and no memory behind', async () => {
  const directory = makeMountPoint();
  folders.push(directory);
  const host = join(compiledSources(), 'test/kernel/cycle-host.js');

  const { code, stdout, stderr } = await run(process.execPath, ['--expose-gc', host, directory], 100_000);

  expect(stderr).toBe('');
  expect(code).toBe(0);
  const { early, late } = JSON.parse(stdout) as { early: Held; late: Held };
  expect(late.descriptors).toBeLessThanOrEqual(early.descriptors);
  expect(late.threads).toBeLessThanOrEqual(early.threads);
  expect(late.residentKiB - early.residentKiB).toBeLessThan(16 * 1024);
});

/** Slices that are in the page cache are answered at once, others by the pool: `nocache` makes sure of the latter. */
test('bytes of a read may lie in a file, in the page cache or not', async () => {
  const content = randomBytes(5_000_003);
  const file = join(folder(), 'content');
  writeFileSync(file, content);
  const driver = await mounted({ sliceOf: file, fileSystem: { keepCache: false } });
  await driver.do({ do: 'plant', parent: 1, name: 'f', text: 'x'.repeat(content.length) });
  const digest = () => shell(`sha256sum < ${driver.path('f')}`).then((line) => line.split(' ')[0]);

  expect(await digest()).toBe(digestOf(content));
  await shell(`sync ${file}; dd of=${file} oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null`);
  expect(await digest()).toBe(digestOf(content));

  await driver.until(({ slices, openHandles }) => slices === 0 && openHandles === 0, 'all is over');
});

test('long replies are left to the pool while they take long, one between two runs of them tells, and no byte is different', async () => {
  const content = randomBytes(40_000_003);
  const file = join(folder(), 'content');
  writeFileSync(file, content);
  const read = async (slowReplyMs: number) => {
    const driver = await mounted({ sliceOf: file, slowReplyMs, fileSystem: { keepCache: false } });
    await driver.do({ do: 'plant', parent: 1, name: 'f', text: 'x'.repeat(content.length) });
    for (let round = 0; round < 3; round++)
      expect(await shell(`sha256sum < ${driver.path('f')}`).then((line) => line.split(' ')[0])).toBe(digestOf(content));
    const { binding, operations } = await driver.until(({ slices }) => slices === 0, 'all is sent');
    return { slow: binding.slowReplies, all: operations.read ?? 0 };
  };

  expect((await read(4_000)).slow).toBe(0);
  const { slow, all } = await read(0);
  // 16 of the first 17, 32 of the next 33, and so on; short ones at the end of the file do not count.
  expect(slow).toBeGreaterThan(all / 2);
  expect(slow).toBeLessThan(all);
});

test('a slice that cannot be had is EIO for its reader, who does not wait for ever', async () => {
  const file = join(folder(), 'content');
  writeFileSync(file, 'ab');
  const driver = await mounted({ sliceOf: file });
  await driver.do({ do: 'plant', parent: 1, name: 'f', text: 'ab' });
  await driver.do({ do: 'close-slices' });

  const { code, stderr } = await run('cat', [driver.path('f')]);

  expect(stderr).toContain('Input/output error');
  expect(code).toBe(1);
  await driver.until(({ slices, openHandles }) => slices === 0 && openHandles === 0, 'all is given back');
});

test('slices that come after their reader was killed are given back', async () => {
  const file = join(folder(), 'content');
  writeFileSync(file, 'x'.repeat(10_000));
  const driver = await mounted({ sliceOf: file });
  await driver.do({ do: 'plant', parent: 1, name: 'f', text: 'x'.repeat(10_000) });
  await driver.do({ do: 'rule', op: 'read', effect: 'hang' });
  const reader = started('cat', [driver.path('f')]);
  await driver.until(({ hanging }) => hanging > 0, 'the read waits');
  reader.child.kill('SIGKILL');
  await reader.finished;

  await driver.do({ do: 'release' });

  await driver.until(({ slices, openHandles }) => slices === 0 && openHandles === 0, 'all is given back');
});

/** Fewer prove nothing: then they go on for longer than they should. */
const CALLS_MIN = 1000;
/** Each of the threads works on files of its own and checks what it reads; all share the folders. */
const MIXED = (seconds: number) => `
  const end = performance.now() + ${seconds * 1000}; let calls = 0;
  const worker = async (w) => {
    let seed = w + 1; const random = (n) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
    const names = new Map();
    for (let i = 0; performance.now() < end || (calls <= ${CALLS_MIN} && performance.now() < end + 30_000); i++) {
      const name = path.join(D, 'dir' + random(4), 'w' + w + '-' + random(12));
      const known = names.get(name);
      calls++;
      switch (random(7)) {
        case 0: case 1: { const bytes = Buffer.alloc(random(20) === 0 ? 300000 : random(9000), 'w' + w + '#' + i); await fs.promises.writeFile(name, bytes); names.set(name, bytes); break }
        case 2: if (known) { if (!(await fs.promises.readFile(name)).equals(known)) throw new Error('wrong bytes in ' + name) } break;
        case 3: if (known) { await fs.promises.unlink(name); names.delete(name) } break;
        case 4: if (known) { const to = name + 'r'; await fs.promises.rename(name, to); names.delete(name); names.set(to, known); const back = await fs.promises.stat(to); if (back.size !== known.length) throw new Error('wrong size'); await fs.promises.rename(to, name); names.delete(to); names.set(name, known) } break;
        case 5: { const there = await fs.promises.stat(name).then((s) => s.size, (e) => e.code); if (there !== (known ? known.length : 'ENOENT')) throw new Error(name + ' is ' + there) } break;
        case 6: { const list = new Set(await fs.promises.readdir(path.dirname(name))); for (const mine of names.keys()) if (path.dirname(mine) === path.dirname(name) && !list.has(path.basename(mine))) throw new Error('not listed: ' + mine) } break;
      }
    }
  };
  for (let d = 0; d < 4; d++) fs.mkdirSync(path.join(D, 'dir' + d));
  await Promise.all(Array.from({ length: 32 }, (_, w) => worker(w)));
  return calls;
`;

test('thirty-two threads of mixed calls and eight finds get no wrong answer, and nobody hangs', async () => {
  const seconds = Number(process.env.CFS_TEST_MIXED_SECONDS ?? 4);
  const driver = await mounted({ fileSystem: { entryTimeoutMs: 600_000, attributeTimeoutMs: 600_000 } });
  const limitMs = (seconds + 60) * 1000;
  const listing = `end=$(($(date +%s) + ${seconds})); while [ $(date +%s) -lt $end ]; do find ${driver.directory} -ls > /dev/null 2>&1; done`;
  const finds = Array.from({ length: 8 }, () => started('sh', ['-c', listing], limitMs));
  vi.stubEnv('UV_THREADPOOL_SIZE', '32');
  onTestFinished(() => {
    vi.unstubAllEnvs();
  });

  const calls = await script<number>(driver.directory, MIXED(seconds), limitMs);

  tellFigures(`${calls} calls of 32 threads beside 8 finds in ${seconds} s`);
  expect(calls).toBeGreaterThan(CALLS_MIN);
  for (const { finished } of finds) expect((await finished).signal).toBeNull();
  const state = await driver.until(({ openHandles }) => openHandles === 0, 'all handles are released');
  expect(state.binding.freeSmallSlots).toBe(256);
  expect(Object.values(state.failures).reduce((a, b) => a + b, 0)).toBe(
    (state.failures.lookup ?? 0) + (state.failures.open ?? 0),
  );
});

/** A listing that hangs keeps back the notifications about the names in its folder. */
test.each([
  { kernel: 'that expires names', maskedFeatures: [] },
  { kernel: 'that drops names', maskedFeatures: ['has-expire-only'] },
])('a kernel $kernel learns of 30,000 changed names in a folder whose listing hangs', async ({ maskedFeatures }) => {
  const driver = await mounted({
    mount: { maskedFeatures },
    fileSystem: { entryTimeoutMs: 600_000, attributeTimeoutMs: 600_000 },
  });
  const path = driver.path('folder');
  const folder = (await driver.do({ do: 'plant-folder', parent: 1, name: 'folder' })) as number;
  await driver.do({ do: 'plant', parent: folder, name: 'n7', text: 'old' });
  expect(await shell(`stat -c %s ${path}/n7; ls ${path}/n8 2>&1 || true`)).toMatch(/^3\n.*No such file/);
  const inside = started('sh', ['-c', `cd ${path}; exec sleep 60`], 60_000);
  const place = (): string => readlinkSync(`/proc/${inside.child.pid}/cwd`);
  await vi.waitUntil(() => place() === path, { timeout: 30_000, interval: 10 });
  await driver.do({ do: 'rule', op: 'readdir', ino: folder, effect: 'hang' });
  const lister = started('ls', [path]);
  await driver.until(({ hanging }) => hanging > 0, 'the listing hangs');

  await driver.do({ do: 'plant', parent: folder, name: 'n7', text: 'changed' });
  await driver.do({ do: 'plant', parent: folder, name: 'n8', text: 'appeared' });
  await driver.do({ do: 'invalidate-entries', parent: folder, prefix: 'n', count: 30_000 });
  expect((await driver.state()).binding.notificationsWaiting).toBe(30_000);
  await driver.do({ do: 'release' });
  expect((await lister.finished).stdout).toBe('n7\nn8\n');
  await driver.until((state) => state.binding.notificationsWaiting === 0, 'nothing waits');

  expect(place()).toBe(path);
  expect(await shell(`stat -c %s ${path}/n7 ${path}/n8`)).toBe('7\n8\n');
  expect(place()).toBe(path);
  inside.child.kill('SIGKILL');
  await inside.finished;
});

test('a folder keeps its path for the processes in it when the kernel is notified of its name', async () => {
  const driver = await mounted({ fileSystem: { entryTimeoutMs: 600_000, attributeTimeoutMs: 600_000 } });
  const path = driver.path('folder');
  await driver.do({ do: 'plant-folder', parent: 1, name: 'folder' });
  const inside = started('sh', ['-c', `cd ${path}; exec sleep 60`], 60_000);
  const place = (): string => readlinkSync(`/proc/${inside.child.pid}/cwd`);
  await vi.waitUntil(() => place() === path, { timeout: 30_000, interval: 10 });

  await driver.do({ do: 'invalidate-entry', parent: 1, name: 'folder' });
  await driver.until(({ binding }) => binding.notificationsWritten === 1, 'the kernel is told');

  expect(place()).toBe(path);
  await shell(`stat ${path}`);
  expect(place()).toBe(path);
  inside.child.kill('SIGKILL');
  await inside.finished;
});

test('the main thread may ask its own mount', async () => {
  const driver = await mounted();
  await driver.do({ do: 'plant', parent: 1, name: 'f', text: 'hello' });

  expect(await driver.do({ do: 'stat-own', path: driver.path('f') })).toBe(5);
});

/** The kernel leaves clearing them to us (HANDLE_KILLPRIV_V2), and only for callers without privilege. */
testUnless(missingRoot())(
  'a write, truncate or chown by someone without privilege clears setuid and setgid',
  async () => {
    const driver = await mounted({ mount: { allowOther: true } });
    const nobody = (command: string) =>
      `setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all sh -c '${command}'`;
    const f = driver.path('f');
    const mode = async (act: string): Promise<string> =>
      (await shell(`rm -f ${f}; echo x > ${f}; chmod 6777 ${f}; ${act}; stat -c '%a %y' ${f} | cut -d' ' -f1`)).trim();

    expect(await mode(nobody(`echo y >> ${f}`))).toBe('777');
    expect(await mode(nobody(`truncate -s 1 ${f}`))).toBe('777');
    expect(await mode(nobody(`: > ${f}`))).toBe('777');
    expect(await mode(`chown 1:1 ${f}`)).toBe('777');
    expect(await mode(`cat ${f}`)).toMatch(/6777$/);
  },
);

const ORDINARY_USER = 'setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=+all';

/** In a mount namespace of its own, where the device is open to all as on ordinary systems. */
testUnless(missingForOtherUsers() ?? missingMtab())(
  'an ordinary user mounts and unmounts with fusermount3',
  async () => {
    const place = folder();
    const host = join(compiledSources(), 'test/kernel/memory-mount-host.js');
    // All that `-o` takes; not all of it is known to fusermount3.
    const flags = [
      'exec',
      'noexec',
      'async',
      'sync',
      'dirsync',
      'atime',
      'relatime',
      'strictatime',
      'nodiratime',
      'diratime',
    ];
    const mount = { directory: `${place}/m`, fsname: 'a,b c', flags: [...flags, 'noatime', 'nosuid', 'nodev'] };
    const options = JSON.stringify({ mount });

    await shell(
      `chmod 755 ${place}; mkdir ${place}/m; chown 65534:65534 ${place}/m; mknod -m 666 ${place}/fuse c 10 229
     cat > ${place}/inside.sh <<'END'
mount --bind ${place}/fuse /dev/fuse
${ORDINARY_USER} ${process.execPath} ${host} '${options}' 2> ${place}/log &
for i in $(seq 1200); do grep -q mounted ${place}/log && break; sleep 0.05; done
grep ' ${place}/m ' /proc/mounts | cut -d' ' -f1,3,4 | cut -d, -f-8
${ORDINARY_USER} sh -c 'echo hello > ${place}/m/f; cat ${place}/m/f; stat -c %u ${place}/m/f; fusermount3 -u ${place}/m'
wait $!
cat ${place}/log
END`,
    );
    const [unshare = '', ...words] = inMountNamespace(`exec sh -eu ${place}/inside.sh`, null);
    const { code, stdout: said, stderr } = await run(unshare, words, 90_000);

    expect(code, stderr).toBe(0);
    expect(said.split('\n').slice(0, 3)).toEqual([
      'a,b\\040c fuse.cfs-test rw,sync,dirsync,nosuid,nodev,noexec,noatime',
      'hello',
      '65534',
    ]);
    expect(said).toContain('"ended":"unmounted"');
  },
);

/** As libfuse from source lays it down, and as NixOS has it. */
test.skipIf(missingForOtherUsers() !== null).each([
  { where: 'in /usr/local', own: '' },
  { where: 'on the path of the user', own: 'PATH=$place/wrappers:$PATH' },
])(titled('a fusermount3 that lies $where mounts and unmounts', missingForOtherUsers()), async ({ own }) => {
  const place = folder();
  const module = join(compiledSources(), 'src/kernel/mounting.js');
  const options = { fsname: 'x', subtype: 'x', flags: [] };
  // It mounts nothing: what is asked of it is what counts.
  const steps = `
    const point = await import(${JSON.stringify(module)});
    const { loadKernelAddon } = await import(${JSON.stringify(join(compiledSources(), 'src/kernel/kernel-addon.js'))});
    const addon = { ...loadKernelAddon(), receiveDescriptor: () => 0 };
    point.openMount({ ...${JSON.stringify(options)}, directory: '/a' }, { addon, uid: 65534 });
    point.unmountDirectory('/b', 'lazily', addon);
    await point.unmountInBackground('/c', 'orderly');`;
  await shell(
    `chmod 755 ${place}; mkdir ${place}/wrappers ${place}/none; touch ${place}/asked; chmod 666 ${place}/asked
     printf '#!/bin/sh\necho "$@" >> ${place}/asked\n' > ${place}/wrappers/fusermount3; chmod 755 ${place}/wrappers/fusermount3
     cat > ${place}/steps.mjs <<'END'
${steps}
END
     cat > ${place}/inside.sh <<'END'
place=${place}
mount --bind /dev/null $(command -v fusermount3)
mount --bind ${place}/${own === '' ? 'wrappers' : 'none'} /usr/local/bin
${ORDINARY_USER} env ${own} ${process.execPath} ${place}/steps.mjs
END`,
  );
  const [unshare = '', ...words] = inMountNamespace(`exec sh -eu ${place}/inside.sh`, null);

  const { code, stderr } = await run(unshare, words, 90_000);

  expect(code, stderr).toBe(0);
  expect(readFileSync(join(place, 'asked'), 'utf8')).toBe(
    '-o fsname=x,subtype=x,max_read=1048576 -- /a\n-u -z -- /b\n-u -- /c\n',
  );
});
