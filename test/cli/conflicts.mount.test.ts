import { hostname } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Conflict } from '../../src/control/status-model.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';

/** `cfs conflicts`: what two mounts of one account changed at the same time, and copies with names of other machines. */

let mount: MountFixture;
let calls: SyscallProcess;
const host = hostname();
const at = (name: string): string => `${mount.directory}/${name}`;
const cfs = (...args: readonly string[]) => mount.cfs(args, { anyExitCode: true });

beforeAll(async () => {
  mount = await MountFixture.start();
  calls = await SyscallProcess.start(mount.directory);
});

afterAll(async () => {
  await calls?.dispose();
  await mount?.dispose();
});

async function conflicts(): Promise<readonly Conflict[]> {
  const { stdout } = await cfs('conflicts', '--json');
  return (JSON.parse(stdout) as { conflicts: readonly Conflict[] }).conflicts;
}

async function bytesOf(name: string): Promise<string> {
  return (await mount.run(`cat '${name}'`)).stdout;
}

/** [S-conflict-1] [S-conflicts-1] */
test('a file that was saved in two places is listed with its copy, whose name says whose bytes it holds', async () => {
  expect((await cfs('conflicts')).stdout).toBe('there are no conflicts\n');
  await mount.run('printf base > plan.txt');
  await mount.sync();
  await mount.cfs(['refresh']);
  const other = await mount.freshStore(['--settle', '1h']);
  await other.run('cat plan.txt && printf "of the other" > plan.txt');
  await mount.run('printf mine > plan.txt');
  await mount.sync();
  await other.sync(); // the later push goes over the version of `mount`, and keeps it as a copy
  await mount.cfs(['refresh']);

  const [conflict] = await conflicts();
  expect(conflict?.copy.path).toMatch(
    new RegExp(`^plan \\(conflicted copy \\d{4}-\\d\\d-\\d\\d not from ${host}\\)\\.txt$`),
  );
  expect(conflict).toMatchObject({ host, mine: 'original', original: { path: 'plan.txt', sizeBytes: 12 } });
  expect(await bytesOf(conflict?.copy.path ?? '')).toBe('mine');
  expect(await bytesOf('plan.txt')).toBe('of the other');
  const attribute = await calls.getxattr('plan.txt', 'user.cfs.conflict');
  expect(Buffer.from(attribute).toString()).toBe(conflict?.copy.path);
  const { stdout } = await cfs('conflicts');
  expect(stdout).toMatch(/^in the top folder\n.* mine {4}plan\.txt\n.* theirs {2}plan \(conflicted copy .*\)\.txt\n$/s);
});

/** [S-conflicts-2] */
test('a conflict ends with the side that is kept, and with both under names of their own', async () => {
  const copyOf = (stem: string, from: string): string => `${stem} (conflicted copy 2026-11-20 ${from}).txt`;
  const [conflict] = await conflicts();
  const diff = await cfs('conflicts', 'diff', at('plan.txt'));
  expect(diff.code).toBe(14);
  expect(diff.stdout).toContain('-of the other');
  expect(await cfs('conflicts', 'keep', 'theirs', at('plan.txt'))).toMatchObject({ code: 0 });
  expect(await bytesOf('plan.txt')).toBe('mine');
  expect((await mount.run('ls')).stdout).not.toContain(conflict?.copy.path);

  for (const [stem, from] of [
    ['own', host],
    ['theirs', `not from ${host}`],
    ['both', host],
    ['far', 'desk'],
  ] as const)
    await mount.run(`printf original > ${stem}.txt && printf copy > '${copyOf(stem, from)}'`);
  await cfs('conflicts', 'keep', 'mine', at('own.txt'));
  expect(await bytesOf('own.txt')).toBe('copy');
  await cfs('conflicts', 'keep', 'mine', at(copyOf('theirs', `not from ${host}`)));
  expect(await bytesOf('theirs.txt')).toBe('original');
  await cfs('conflicts', 'keep', 'both', at('both.txt'));
  expect(await bytesOf(`both (${host} 2026-11-20).txt`)).toBe('copy');
  const refused = await cfs('conflicts', 'keep', 'mine', at('far.txt'));
  expect(refused).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('the copy was made by desk: say original or copy'),
  });
  await cfs('conflicts', 'keep', 'original', at('far.txt'));
  expect(await conflicts()).toEqual([]);
  expect(await cfs('conflicts', 'keep', 'mine', at('own.txt'))).toMatchObject({ code: 2 });
});
