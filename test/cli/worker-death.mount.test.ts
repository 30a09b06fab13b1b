import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';

/**
 * The Worker of the built program dies. Nothing in the program knows of this test: Node loads a module into each of its threads
 * (NODE_OPTIONS), and in the Worker that module waits for a file.
 */
const BOMB = (folder: string): string => `
  import { existsSync } from 'node:fs';
  import { isMainThread } from 'node:worker_threads';
  if (!isMainThread) setInterval(() => {
    if (existsSync(${JSON.stringify(join(folder, 'throw'))})) throw new Error('a bug that nobody caught');
    if (existsSync(${JSON.stringify(join(folder, 'exit'))})) process.exit(3);
  }, 20).unref();
`;

let folder: string;
let mount: MountFixture;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'cfs-worker-death-'));
  writeFileSync(join(folder, 'bomb.mjs'), BOMB(folder));
  mount = await MountFixture.start({ env: { NODE_OPTIONS: `--import ${join(folder, 'bomb.mjs')}` } });
});

afterEach(async () => {
  await mount.dispose();
  rmSync(folder, { recursive: true, force: true });
});

test.each(['throw', 'exit'] as const)(
  'a Worker that dies (%s) ends every caller and the process at once',
  async (how) => {
    await mount.run('echo kept > file; for i in 1 2 3 4; do echo $i > file-$i; done');
    // What the kernel has not kept: a name that was never asked for, and an open.
    const options = { anyExitCode: true, timeoutMs: 120_000 };
    const asking = mount.run('i=0; while i=$((i + 1)); ls "new-$i" 2>&1 | grep -q "No such file"; do :; done', options);
    const opening = mount.run('while cat file > /dev/null 2>&1; do :; done; cat file', options);

    writeFileSync(join(folder, how), '');
    // Waits for half a minute at most: a second on a machine of one's own, and a Worker that is only silent is given up after a minute.
    await mount.gone();

    await asking;
    expect((await opening).code).not.toBe(0);
    expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(` ${mount.directory} `);
    expect(await mount.logs()).toContain('the worker died');

    // What was closed is there at the next start.
    rmSync(join(folder, how));
    await mount.mount();
    expect((await mount.run('cat file file-4')).stdout).toBe('kept\n4\n');
  },
);
