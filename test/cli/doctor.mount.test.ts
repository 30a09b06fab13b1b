import { closeSync, openSync, readdirSync, statSync, truncateSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';

/** `cfs doctor` as it is installed, on this machine, around a real mount: what unit tests can only pretend. */

let mount: MountFixture;

beforeEach(async () => {
  mount = await MountFixture.start();
  await mount.run('echo kept > file');
});

afterEach(() => mount.dispose());

/** The problems that it names, but for those of the machine on which the tests run. */
async function doctor(): Promise<{ code: number; names: string[]; notes: string[] }> {
  const { stdout, code } = await mount.cfs(['doctor', '--json'], { anyExitCode: true });
  const { findings, checks } = JSON.parse(stdout) as {
    findings: { name: string; what: string }[];
    checks: { note: string | null }[];
  };
  const ours = findings.filter(
    ({ name, what }) =>
      !name.startsWith('disk-') && !(name.startsWith('mount-') && !what.includes(mount.env().HOME ?? '')),
  );
  // The code is that of the first problem, which may be the machine's own.
  const isTheMachines = ours.length === 0 && findings.length > 0;
  return {
    code: isTheMachines ? 0 : code,
    names: ours.map(({ name }) => name),
    notes: checks.map(({ note }) => note ?? ''),
  };
}

function database(): string {
  const accounts = join(mount.env().XDG_STATE_HOME ?? '', 'cfs', 'accounts');
  return join(accounts, readdirSync(accounts)[0] ?? '', 'store', 'index', 'data.mdb');
}

test('a mount that works is sound, and so is what it leaves', async () => {
  const mounted = await doctor();
  expect(mounted).toMatchObject({ code: 0, names: [] });
  expect(mounted.notes).toContain(`mounted at ${mount.directory}`);

  await mount.sync();
  await mount.unmount();

  const { code, names, notes } = await doctor();
  expect([code, names]).toEqual([0, []]);
  expect(notes.some((note) => /^\d+ entries and \d+ contents? looked at$/.test(note))).toBe(true);
});

test('one that was killed is a dead mount with a socket that nobody answers', async () => {
  await mount.kill9();

  expect(await doctor()).toMatchObject({ code: 9, names: ['socket-stale', 'mount-dead'] });
  // What it says to do is done: the next start takes both away.
  await mount.mount();
  expect(await doctor()).toMatchObject({ code: 0, names: [] });
});

test('one whose process is stopped hangs, and the doctor does not', async () => {
  process.kill(mount.pid, 'SIGSTOP');
  try {
    expect((await doctor()).names).toEqual(['mount-silent', 'mount-hangs']);
  } finally {
    process.kill(mount.pid, 'SIGCONT');
  }
});

/** LMDB maps the file: what is cut off ends the process that reads it, which must not be the doctor's. */
test.each([
  ['cut short', (path: string) => truncateSync(path, 4096)],
  ['empty of sense', (path: string) => overwrite(path)],
])('a store whose file is %s is named as damaged', async (_what, damage) => {
  await mount.run('mkdir many; for i in $(seq 200); do echo $i > many/$i; done');
  await mount.sync();
  await mount.unmount();
  damage(database());

  const { code, names } = await doctor();

  expect(new Set(names)).toEqual(new Set(['store-damaged']));
  expect(code).toBe(11);
});

function overwrite(path: string): void {
  const { size } = statSync(path);
  const fd = openSync(path, 'r+');
  writeSync(fd, Buffer.alloc(size, 0xa5), 0, size, 0);
  closeSync(fd);
}
