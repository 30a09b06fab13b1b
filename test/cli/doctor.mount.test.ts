import { closeSync, cpSync, openSync, readdirSync, rmSync, statSync, truncateSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { loneDoctor } from '../harness/lone-doctor.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingRoot, testUnless } from '../harness/requirement.ts';
import { stopProcess } from '../harness/stop-process.ts';

/** `cfs doctor` as it is installed, around a real mount: what unit tests can only pretend. One mount, which each test breaks further. */

let mount: MountFixture;

beforeAll(async () => {
  mount = await MountFixture.start();
  await mount.run('echo kept > file; mkdir many; for i in $(seq 200); do echo $i > many/$i; done');
  await mount.sync();
});

afterAll(() => mount?.dispose());

/** What it finds and says, and its exit code. */
async function doctor(): Promise<{ code: number; names: string[]; notes: string[] }> {
  const { stdout, code } = await loneDoctor(mount, { CFS_CACHE_RESERVE: '1MiB' });
  const { findings, checks } = JSON.parse(stdout) as {
    findings: { name: string }[];
    checks: { note: string | null }[];
  };
  return { code, names: findings.map(({ name }) => name), notes: checks.map(({ note }) => note ?? '') };
}

function store(): string {
  const accounts = join(mount.env().XDG_STATE_HOME ?? '', 'cfs', 'accounts');
  return join(accounts, readdirSync(accounts)[0] ?? '', 'store');
}

testUnless(missingRoot())('a mount that works is sound', async () => {
  const { code, names, notes } = await doctor();

  expect([code, names]).toEqual([0, []]);
  expect(notes).toContain(`mounted at ${mount.directory}`);
});

testUnless(missingRoot())('one whose process is stopped hangs, and no command of ours does', async () => {
  await stopProcess(mount.pid);
  try {
    const [found, status, sync] = await Promise.all([
      doctor(),
      mount.cfs(['status']),
      mount.cfs(['sync', '--wait'], { anyExitCode: true }),
    ]);

    expect(found).toMatchObject({ code: exitCode('failure'), names: ['mount-hangs'] });
    expect(status.stdout).toContain(`mounted, but the process (${mount.pid}) does not answer`);
    expect(sync).toMatchObject({ code: exitCode('failure'), stdout: '' });
    expect(sync.stderr).toMatch(/^cfs: the mount of \S+ does not answer: run cfs doctor\n$/);
  } finally {
    process.kill(mount.pid, 'SIGCONT');
  }
});

testUnless(missingRoot())(
  'one that was killed is a dead mount with a socket that nobody answers; who hung in it is free, as it says of one that hangs',
  async () => {
    await stopProcess(mount.pid);
    const hanging = mount.run('stat never-asked-for', { anyExitCode: true });
    const { stdout } = await loneDoctor(mount, {});
    expect(stdout).toContain(`kill -9 ${mount.pid}`);

    await mount.kill9();

    expect((await hanging).stderr).toMatch(/abort|not connected/i);
    expect(await doctor()).toMatchObject({ code: exitCode('notMounted'), names: ['socket-stale', 'mount-dead'] });
    // What it says to do is done: the next start takes both away, and what that leaves is sound.
    await mount.mount();
    await mount.unmount();
    const { code, names, notes } = await doctor();
    expect([code, names]).toEqual([0, []]);
    expect(notes).toContainEqual(expect.stringMatching(/^\d+ entries and \d+ contents? checked$/));
  },
);

/** LMDB maps the file: what is cut off ends the process that reads it, which must not be the doctor's. */
test.skipIf(missingRoot() !== null).each([
  ['cut short behind its beginning', (path: string) => truncateSync(path, 2 * 4096)],
  ['cut short in its beginning', (path: string) => truncateSync(path, 4096)],
  ['empty of sense', (path: string) => overwrite(path)],
])('a store whose file is %s is named as damaged', async (_what, damage) => {
  const sound = `${store()}.sound`;
  cpSync(store(), sound, { recursive: true });
  damage(join(store(), 'index/data.mdb'));
  try {
    const { code, names } = await doctor();

    expect([code, ...new Set(names)]).toEqual([exitCode('store'), 'store-damaged']);
  } finally {
    rmSync(store(), { recursive: true });
    cpSync(sound, store(), { recursive: true });
    rmSync(sound, { recursive: true });
  }
});

function overwrite(path: string): void {
  const { size } = statSync(path);
  const fd = openSync(path, 'r+');
  writeSync(fd, Buffer.alloc(size, 0xa5), 0, size, 0);
  closeSync(fd);
}
