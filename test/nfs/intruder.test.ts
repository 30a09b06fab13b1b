import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { tellFigures } from '../harness/figures.ts';
import { missingFile, missingNodeForOtherUsers, titled } from '../harness/requirement.ts';
import { RootTaken } from './darwin-ground.ts';
import { DarwinMount } from './darwin-mount.ts';

/** CFS_NFS_STARTS=50 for a long run. */
const STARTS = Number(process.env.CFS_NFS_STARTS ?? 2);
const WAIT_MS_MAX = 60_000;
const OTHER_USER = 65534;
const missing = missingNodeForOtherUsers() ?? missingFile('/proc/self/cmdline');

describe.skipIf(missing !== null)(titled('a program of another user', missing), () => {
  let mount: DarwinMount;
  let intruder: ChildProcess;
  let got = '';

  beforeAll(async () => {
    mount = await DarwinMount.prepare();
    const text = readFileSync(new URL('./intruder.mjs', import.meta.url), 'utf8');
    const words = ['--input-type=module', '-e', text, '--', mount.ground.folder];
    const user = { uid: OTHER_USER, gid: OTHER_USER, cwd: '/' };
    intruder = spawn(process.execPath, words, { ...user, stdio: ['pipe', 'pipe', 'inherit'] });
    intruder.stdout?.setEncoding('utf8').on('data', (lines: string) => {
      got += lines;
    });
    await vi.waitUntil(() => got === 'ready\n', { timeout: WAIT_MS_MAX });
  }, 2 * WAIT_MS_MAX);

  afterAll(async () => {
    intruder?.kill('SIGKILL');
    await mount?.dispose();
  });

  test('that asks for the root and binds the port during starts and deaths of the mount gets nothing', {
    timeout: 2 * WAIT_MS_MAX + STARTS * 3 * WAIT_MS_MAX,
  }, async () => {
    onTestFailed(() => console.error(`${got}\n${mount.log()}`));
    let kills = 0;
    let refused = 0;
    for (let start = 1; start <= STARTS; start++) {
      // Who reads the mount command can be first with the path: that start must fail. The last one succeeds.
      intruder.stdin?.write((STARTS - start) % 2 === 1 ? 'watch\n' : 'ignore\n');
      const mounted = await mount.mount().catch((error: unknown) => {
        if (!(error instanceof RootTaken)) throw error;
        refused++;
        return null;
      });
      if (mounted === null) continue;
      const { client, root, port, path } = mounted;
      intruder.stdin?.write(`know ${port} ${path}\n`);
      for (; kills < start; kills++) {
        await mount.killAndContinue();
        await client.names(root);
      }
      const umount = await mount.ground.run('cfs', 'umount');
      expect(umount.code, umount.stderr).toBe(0);
      client.close();
    }
    intruder.stdin?.end();
    await vi.waitUntil(() => got.endsWith('}\n'), { timeout: WAIT_MS_MAX });
    const [ready, ...lines] = got.trim().split('\n');
    const { attempts, first } = JSON.parse(lines.pop() ?? '');
    expect(ready).toBe('ready');
    expect(lines).toEqual([]);
    expect(attempts).toBeGreaterThan(STARTS);
    expect(first, 'each of its roots ended a start').toBe(refused);
    tellFigures(`${STARTS} starts, ${refused} of them refused, ${kills} kills, ${attempts} attempts of an intruder`);
  });
});
