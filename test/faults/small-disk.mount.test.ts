import { spawnSync } from 'node:child_process';
import { closeSync, openSync, rmSync, statSync, truncateSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { type MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingPrograms, missingRoot } from '../harness/requirement.ts';
import { SmallDisk } from '../harness/small-disk.ts';

/**
 * A mount whose store lies on a real file system of 64 MiB, which fills: with changes that nobody can push, with names until LMDB
 * finds no page, with what is read. The process lives, whoever writes is told, and what was closed is there when there is room again.
 */

const MIB = 1024 * 1024;

const missing = missingRoot() ?? missingForMounts() ?? missingPrograms('python3');

/** One file each; their names are those whose close(2) returned 0. What refused is told as its errno. */
const FILLER = `
import errno, hashlib, os, sys
folder, count, size, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == 'stop'
refused = 0
for n in range(count):
    name = f'{folder}/f{n:05d}'
    data = (f'{n} ' * (size // 2 + 1)).encode()[:size]
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            for at in range(0, size, 131072):
                os.write(fd, data[at:at + 131072])
        finally:
            os.close(fd)
        print('kept', name, hashlib.sha256(data).hexdigest())
    except OSError as error:
        print('refused', name, errno.errorcode[error.errno])
        refused += 1
        if stop or refused >= 20: break
`;

/** Compares what was kept with what is there now. */
const CHECKER = `
import hashlib, sys
bad = 0
for line in sys.stdin:
    what, name, digest = line.split()
    if what != 'kept': continue
    try:
        with open(name, 'rb') as file: found = hashlib.sha256(file.read()).hexdigest()
    except OSError as error: found = str(error)
    if found != digest: print(name, found)
`;

describe.skipIf(missing !== null)(`a disk of 64 MiB${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let disk: SmallDisk;
  let mount: MountFixture;
  let ballast: string;
  /** Lines of FILLER. */
  let told = '';

  beforeAll(async () => {
    disk = await SmallDisk.start(['--settle', '1s']);
    mount = disk.mount;
    told += `kept old/large ${disk.digest}\n`;
    // More than a start needs for its journal.
    ballast = disk.fill('ballast', 16 * MIB);
    await mount.mount();
  });

  afterAll(() => disk?.dispose());

  async function fill(folder: string, count: number, size: number, how: 'stop' | 'on'): Promise<readonly string[]> {
    const { stdout } = await mount.run(`mkdir -p ${folder}; exec python3 - ${folder} ${count} ${size} ${how}`, {
      input: FILLER,
      timeoutMs: 60_000,
    });
    told += stdout;
    return stdout.split('\n').filter((line) => line !== '');
  }

  /** What is not there as it was closed; without the service only of what was made here. */
  async function lost(which: 'all' | 'made here' = 'all'): Promise<string> {
    const { stdout } = await mount.run(`cat > /tmp/cfs-check-${mount.pid}.py; true`, { input: CHECKER });
    expect(stdout).toBe('');
    const lines = told.split('\n').filter((line) => which === 'all' || !line.includes(' old/'));
    const input = lines.join('\n');
    try {
      return (await mount.run(`python3 /tmp/cfs-check-${mount.pid}.py`, { input, timeoutMs: 60_000 })).stdout;
    } finally {
      rmSync(`/tmp/cfs-check-${mount.pid}.py`, { force: true });
    }
  }

  const refusals = (lines: readonly string[]): string[] => [
    ...new Set(lines.filter((line) => line.startsWith('refused')).map((line) => line.split(' ')[2] as string)),
  ];

  test('on a full disk write(2) or close(2) fails with ENOSPC and with no other error, and every closed file is complete', async () => {
    onTestFailed(mount.printLogs);
    await mount.run('ls -R > /dev/null');
    await mount.server.kill9();

    const large = await fill('large', 100, MIB, 'stop');
    expect(refusals(large)).toEqual(['ENOSPC']);
    expect(large.filter((line) => line.startsWith('kept')).length).toBeGreaterThan(5);
    // Small ones live in the journal and LMDB's file, which finds no more room either.
    const small = await fill('small', 3000, 16_000, 'on');
    expect(refusals(small)).toEqual(['ENOSPC']);

    expect(await lost('made here')).toBe('');
    const { stdout } = await mount.cfs(['status', '--json'], { anyExitCode: true });
    expect(JSON.parse(stdout)).toMatchObject({ accounts: [{ status: { pid: mount.pid, phase: 'running' } }] });
  });

  test('a deletion frees space although the index has none for its record', async () => {
    onTestFailed(mount.printLogs);
    // The journal took up to 8 MiB that the index owes it, and takes as soon as there is room: what is deleted is more than that.
    const large = told.split('\n').filter((line) => line.startsWith('kept large/'));
    expect(large.length).toBeGreaterThan(20);
    const gone = large.slice(-16, -1).map((line) => line.split(' ')[1] as string);
    await mount.run(`rm ${gone.join(' ')}`);
    told = told
      .split('\n')
      .filter((line) => !gone.some((name) => line.includes(name)))
      .join('\n');
    await mount.run('until cp large/f00000 again; do sleep 0.2; done 2> /dev/null; cmp large/f00000 again');
    // As full as before: more than the whole disk, for what of the room is left by now depends on what the index took.
    expect(refusals(await fill('rest', 300, 256 * 1024, 'stop'))).toEqual(['ENOSPC']);
  });

  test('what is read goes on coming from the service, and is not kept', async () => {
    onTestFailed(mount.printLogs);
    await mount.server.restart();
    const { stdout } = await mount.run('sha256sum old/large');
    expect(told).toContain(stdout.split(' ')[0]);
  });

  test('killed while it is full it starts again where a journal file has no room, with all that was closed', async () => {
    onTestFailed(mount.printLogs);
    expect(await mount.logs()).not.toMatch(/unhandled|uncaught/i);
    await mount.kill9();
    // What lay ready for the journal is taken by somebody else, as all the room but one MiB.
    disk.removeSpares();
    const rest = disk.freeBytes - MIB;
    if (rest > 0) disk.fill('rest', rest);
    else truncateSync(ballast, statSync(ballast).size + rest);
    expect(Math.abs(disk.freeBytes - MIB)).toBeLessThan(MIB / 2);

    // Held open: one of which the index has everything is removed at the start, and must not make room for a whole one.
    const held = disk.files('journal').map((file) => openSync(file, 'r'));
    try {
      await mount.mount();
      const newest =
        disk
          .files('journal')
          .filter((file) => !file.endsWith('spare'))
          .sort()
          .at(-1) ?? '';
      expect(statSync(newest).size).toBeLessThan(8 * MIB);
    } finally {
      for (const fd of held) closeSync(fd);
    }
    expect(await lost()).toBe('');
    // What is pushed meanwhile needs room in the journal as well, and gives it back a moment later.
    await mount.run('until rm large/f00004; do sleep 0.2; done 2> /dev/null');
    told = told
      .split('\n')
      .filter((line) => !line.includes('large/f00004'))
      .join('\n');
  });

  test('after SIGKILL on a completely full disk, a start has every closed file and accepts deletions', async () => {
    onTestFailed(mount.printLogs);
    await mount.kill9();
    disk.removeSpares();
    const last = disk.fillUp('last');
    expect(disk.freeBytes).toBe(0);
    const findings = async (): Promise<string> => (await mount.cfs(['doctor', '--json'], { anyExitCode: true })).stdout;
    // To check a store is to open it, which removes the journal files whose records the index has: up to several MiB become free.
    await findings();
    disk.fillUp('last');
    expect(disk.freeBytes).toBe(0);
    const before = await findings();
    expect(before).toContain('disk-full');
    disk.fillUp('last');
    expect(before).not.toMatch(/store-damaged|store-unopened/);

    await mount.mount();

    expect(await lost()).toBe('');
    await mount.run('rm large/f00005; ! ls large/f00005 2> /dev/null');
    told = told
      .split('\n')
      .filter((line) => !line.includes('large/f00005'))
      .join('\n');
    expect(await findings()).not.toMatch(/store-damaged|store-unopened/);
    rmSync(last);
    // `last` is as large as the spare journal files were, which may be less than the new file.
    truncateSync(ballast, statSync(ballast).size - 4 * MIB);
    await mount.run('until head -c 1M /dev/zero > made; do sleep 0.2; done 2> /dev/null');
  });

  test('killed again it starts when there is room, with all that was closed, and pushes it', async () => {
    onTestFailed(mount.printLogs);
    expect(await mount.logs()).not.toMatch(/unhandled|uncaught/i);
    await mount.kill9();
    rmSync(ballast);
    rmSync(path.join(ballast, '../rest'), { force: true });
    await mount.mount();

    expect(await lost()).toBe('');
    await mount.sync();
    expect(await lost()).toBe('');
    // What was pushed gives its room up only after a question to the service, which version it is: a moment after the push.
    await mount.run('until head -c 4M /dev/zero > probe; do sleep 0.2; done 2> /dev/null; rm probe');
    const more = await fill('more', 4, 1024 * 1024, 'stop');
    expect(refusals(more)).toEqual([]);
    await mount.sync();
    const service = await mount.serverTree();
    const kept = told.split('\n').filter((line) => line.startsWith('kept'));
    for (const line of kept) expect(service.get(line.split(' ')[1] as string), line).toBe(line.split(' ')[2]);
    // LMDB says so on standard error, and what it writes there may be more than it has room for in memory.
    const log = spawnSync('grep', ['-rc', 'Write error', '--include=mount.log', mount.env().XDG_STATE_HOME as string]);
    expect(log.stdout.toString(), 'pages that LMDB found no room for').toMatch(/:0\n$/);
  });
});

describe.skipIf(missing !== null)(
  `a disk with less room than --cache-reserve${missing === null ? '' : ` (needs: ${missing})`}`,
  () => {
    let disk: SmallDisk;
    let mount: MountFixture;

    beforeAll(async () => {
      disk = await SmallDisk.start(['--settle', '1s', '--cache-reserve', '1GiB']);
      mount = disk.mount;
      await mount.mount();
    });

    afterAll(() => disk?.dispose());

    /** Bytes of the service that are kept in files. */
    const cachedBytes = (): number =>
      disk
        .files('cache')
        .filter((file) => !file.endsWith('CACHEDIR.TAG'))
        .reduce((sum, file) => sum + (statSync(file, { throwIfNoEntry: false })?.blocks ?? 0) * 512, 0);

    test('reading goes on, and nothing of it is kept', async () => {
      onTestFailed(mount.printLogs);
      expect((await mount.run('sha256sum old/large')).stdout).toContain(disk.digest);
      expect(cachedBytes()).toBe(0);
    });

    test('the reserve is for what is written: it is accepted, pushed, and given back', async () => {
      onTestFailed(mount.printLogs);
      const { stdout } = await mount.run('head -c 4M /dev/urandom > made; sha256sum made');
      await mount.sync();
      expect((await mount.serverTree()).get('made')).toBe(stdout.split(' ')[0]);
      await expect.poll(cachedBytes, { timeout: 60_000 }).toBe(0);
      expect((await mount.run('sha256sum made')).stdout).toBe(stdout);
    });

    test('when it is used up write(2) or close(2) say ENOSPC, and what was accepted before is kept and pushed', async () => {
      onTestFailed(mount.printLogs);
      await mount.server.kill9();
      const { stdout } = await mount.run('mkdir full; exec python3 - full 100 2097152 stop', { input: FILLER });
      const lines = stdout.split('\n').filter((line) => line !== '');
      const kept = lines.filter((line) => line.startsWith('kept'));
      expect(lines.at(-1)).toMatch(/^refused \S+ ENOSPC$/);
      expect(kept.length).toBeGreaterThan(3);

      await mount.server.restart();
      await mount.sync();

      const service = await mount.serverTree();
      for (const line of kept) expect(service.get(line.split(' ')[1] as string), line).toBe(line.split(' ')[2]);
      // What was pushed is given back within moments.
      await mount.run('until head -c 2M /dev/urandom > again; do sleep 0.2; done 2> /dev/null');
      await mount.sync();
      expect(await mount.logs()).not.toMatch(/unhandled|uncaught/i);
    });
  },
);
