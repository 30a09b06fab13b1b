import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, onTestFailed } from 'vitest';
import { NOT_FOR_PROGRAMS, runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingPrograms, missingRoot, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

/**
 * An unmount that is asked for as soon as the directory can be seen to be mounted, before the kernel's first question is answered.
 * Nothing in the program knows of this test: Node loads a module into its Worker (NODE_OPTIONS) that stands still after mount(2).
 *
 * The mount has a namespace of its own. Tests beside this one run programs that look at every mount of the machine, and a mount that one of
 * them looks at is rightly called busy.
 */
const STAND_STILL_MS = 3_000;
const MODULE = `
  import { isMainThread } from 'node:worker_threads';
  const { dlopen } = process;
  if (!isMainThread) process.dlopen = function (module, ...rest) {
    dlopen.call(process, module, ...rest);
    const { mount } = module.exports;
    if (mount !== undefined) module.exports.mount = (...words) => {
      const result = mount(...words);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${STAND_STILL_MS});
      return result;
    };
  };
`;

const missing = missingRoot() ?? missingPrograms('unshare', 'nsenter');
let folder: string;
let mount: MountFixture;
let starting: ChildProcess | null = null;
let namespace: ChildProcess | null = null;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'cfs-early-umount-'));
  writeFileSync(join(folder, 'module.mjs'), MODULE);
  mount = await MountFixture.start();
  await mount.run('echo kept > file');
  await mount.unmount();
  if (missing !== null) return;
  namespace = spawn('unshare', ['--mount', '--propagation=private', 'sh', '-c', 'echo; exec sleep 120'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  await once(namespace.stdout as Readable, 'data');
});

afterAll(async () => {
  starting?.kill('SIGKILL');
  namespace?.kill('SIGKILL');
  await mount?.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const isMounted = (): boolean =>
  readFileSync(`/proc/${namespace?.pid}/mounts`, 'utf8').includes(` ${mount.directory} `);

/** The command line of a program of ours in the mount's namespace. */
const inside = (program: string, ...words: readonly string[]): readonly [string, ...string[]] => {
  return [
    'nsenter',
    `--mount=/proc/${namespace?.pid}/ns/mnt`,
    process.execPath,
    join(PROJECT, 'dist/cli', program),
    ...words,
  ];
};

// mount(2) is root's; fusermount3 does it for others.
testUnless(missing)('cfs umount while the mount is being made takes it away again', async () => {
  onTestFailed(mount.printLogs);
  const [nsenter, ...words] = inside('cfs-mount.js', '-f', mount.directory);
  starting = spawn(nsenter, words, {
    stdio: 'ignore',
    env: {
      ...process.env,
      ...NOT_FOR_PROGRAMS,
      ...mount.env(),
      NODE_OPTIONS: `--import ${join(folder, 'module.mjs')}`,
    },
  });
  const ended = new Promise((resolve) => starting?.once('exit', resolve));
  await expect.poll(isMounted, { interval: 10, timeout: 10_000 }).toBe(true);

  const { code, stdout } = await runCommand(inside('cfs.js', 'umount'), { env: mount.env(), anyExitCode: true });

  expect([code, await ended, isMounted()]).toEqual([0, 0, false]);
  expect(stdout).toBe(`unmounted ${mount.directory}\n`);

  await mount.mount();
  expect((await mount.run('cat file')).stdout).toBe('kept\n');
});
