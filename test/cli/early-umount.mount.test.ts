import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFailed } from 'vitest';
import { NOT_FOR_PROGRAMS } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingRoot, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

/**
 * An unmount that is asked for as soon as the directory can be seen to be mounted, before the kernel's first question is answered.
 * Nothing in the program knows of this test: Node loads a module into its Worker (NODE_OPTIONS) that stands still after mount(2).
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

let folder: string;
let mount: MountFixture;
let starting: ChildProcess | null = null;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'cfs-early-umount-'));
  writeFileSync(join(folder, 'module.mjs'), MODULE);
  mount = await MountFixture.start();
  await mount.run('echo kept > file');
  await mount.unmount();
});

afterAll(async () => {
  starting?.kill('SIGKILL');
  await mount?.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const isMounted = (): boolean => readFileSync('/proc/mounts', 'utf8').includes(` ${mount.directory} `);

/** Starts a mount, and ends it before the first answer. @returns what `cfs umount` says */
async function umountEarly(): Promise<string> {
  starting = spawn(process.execPath, [join(PROJECT, 'dist/cli/cfs-mount.js'), '-f', mount.directory], {
    stdio: 'ignore',
    env: {
      ...process.env,
      ...NOT_FOR_PROGRAMS,
      ...mount.env(),
      NODE_OPTIONS: `--import ${join(folder, 'module.mjs')}`,
    },
  });
  const ended = new Promise((resolve) => starting?.once('exit', resolve));
  await expect.poll(isMounted, { interval: 10 }).toBe(true);

  const { code, stdout } = await mount.cfs(['umount'], { anyExitCode: true });

  expect([code, await ended, isMounted()]).toEqual([0, 0, false]);
  return stdout;
}

// mount(2) is root's; fusermount3 does it for others.
testUnless(missingRoot())('cfs umount while the mount is being made takes it away again', async () => {
  onTestFailed(mount.printLogs);
  let said = await umountEarly();
  // Other tests run beside this one, and some of their programs look at every mount of the machine: it is then rightly called busy.
  for (let again = 0; again < 2 && said.includes('(it was busy'); again++) said = await umountEarly();
  expect(said).toBe(`unmounted ${mount.directory}\n`);

  await mount.mount();
  expect((await mount.run('cat file')).stdout).toBe('kept\n');
});
