import { spawnSync } from 'node:child_process';
import { cpSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';

/**
 * A mount whose store lies on a real file system of 64 MiB, which fills: with changes that nobody can push, with names until LMDB
 * finds no page, with what is read. The process lives, whoever writes is told, and what was closed is there when there is room again.
 */

const missing = process.getuid?.() === 0 ? missingForMounts() : 'root: it mounts a file system of 64 MiB for the store';

/** One file each; their names are those whose close(2) returned 0. What refused is told as its errno. */
const FILLER = `
import errno, hashlib, os, sys
folder, count, size, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == 'stop'
refused = 0
for n in range(count):
    name = f'{folder}/f{n:05d}'
    data = (str(n) + ' ').encode() * (size // 6 + 1)
    data = data[:size]
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
  let mount: MountFixture;
  let state: string;
  let ballast: string;
  /** Lines of FILLER. */
  let told = '';

  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--settle', '1s'] });
    const { stdout } = await mount.run('mkdir old; head -c 12M /dev/urandom > old/large; sha256sum old/large');
    told += `kept old/large ${stdout.split(' ')[0]}\n`;
    await mount.sync();
    await mount.unmount();
    state = mount.env().XDG_STATE_HOME as string;
    cpSync(state, `${state}.aside`, { recursive: true });
    expect(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64m,mode=755', 'tmpfs', state]).status).toBe(0);
    // Only the sign-in: nothing is known of the account's tree, nothing is cached.
    cpSync(`${state}.aside`, state, { recursive: true, filter: (from) => !/\/store(\/|$)/.test(from) });
    // More than a start needs for its journal.
    ballast = path.join(state, 'ballast');
    expect(spawnSync('fallocate', ['-l', '16M', ballast]).status).toBe(0);
    await mount.mount();
  });

  afterAll(async () => {
    await mount?.unmount(['--now']).catch(() => {});
    if (state !== undefined) spawnSync('umount', ['-l', state]);
    await mount?.dispose();
    if (state !== undefined) rmSync(`${state}.aside`, { recursive: true, force: true });
  });

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

  test('writers are told ENOSPC and nothing else, by write(2) or close(2), and all that was closed is there', async () => {
    onTestFailed(mount.printLogs);
    await mount.run('ls -R > /dev/null');
    await mount.server.kill9();

    const large = await fill('large', 100, 2 * 1024 * 1024, 'stop');
    expect(refusals(large)).toEqual(['ENOSPC']);
    expect(large.filter((line) => line.startsWith('kept')).length).toBeGreaterThan(5);
    // Small ones live in the journal and LMDB's file, which finds no more room either.
    const small = await fill('small', 3000, 30_000, 'on');
    expect(refusals(small)).toEqual(['ENOSPC']);

    expect(await lost('made here')).toBe('');
    const { stdout } = await mount.cfs(['status', '--json'], { anyExitCode: true });
    expect(JSON.parse(stdout)).toMatchObject({ accounts: [{ status: { pid: mount.pid, phase: 'running' } }] });
  });

  test('what is deleted makes room again, although the index has none for the deletion', async () => {
    onTestFailed(mount.printLogs);
    const gone = ['large/f00001', 'large/f00002', 'large/f00003'];
    await mount.run(`rm ${gone.join(' ')}`);
    told = told
      .split('\n')
      .filter((line) => !gone.some((name) => line.includes(name)))
      .join('\n');
    await mount.run('until cp large/f00000 again; do sleep 0.2; done 2> /dev/null; cmp large/f00000 again');
    // As full as before.
    expect(refusals(await fill('rest', 100, 256 * 1024, 'stop'))).toEqual(['ENOSPC']);
  });

  test('what is read goes on coming from the service, and is not kept', async () => {
    onTestFailed(mount.printLogs);
    await mount.server.restart();
    const { stdout } = await mount.run('sha256sum old/large');
    expect(told).toContain(stdout.split(' ')[0]);
  });

  test('killed while it is full it starts again when there is room, with all that was closed, and pushes it', async () => {
    onTestFailed(mount.printLogs);
    const { pid } = mount;
    expect(await mount.logs()).not.toMatch(/unhandled|uncaught/i);
    await mount.kill9();
    expect(pid).toBeGreaterThan(0);
    rmSync(ballast);
    await mount.mount();

    expect(await lost()).toBe('');
    await mount.sync();
    expect(await lost()).toBe('');
    const more = await fill('more', 4, 1024 * 1024, 'stop');
    expect(refusals(more)).toEqual([]);
    await mount.sync();
    const service = await mount.serverTree();
    const kept = told.split('\n').filter((line) => line.startsWith('kept'));
    for (const line of kept) expect(service.get(line.split(' ')[1] as string), line).toBe(line.split(' ')[2]);
  });
});
