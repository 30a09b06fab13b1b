import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { SCHEMA_VERSION } from '../../src/store/schema-version.ts';
import { type CommandResult, runCommand } from '../harness/command.ts';
import { percentiles, tellFigures } from '../harness/figures.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';
import { missingForContinuity } from './killed-under-load.ts';

const REPOSITORY = fileURLToPath(new URL('../../', import.meta.url));
const LOAD = fileURLToPath(new URL('./continuity-load.mjs', import.meta.url));
const UPGRADES = Number(process.env.CFS_TEST_UPGRADES ?? '10');
const LOAD_MS_MAX = 24 * 3_600_000;

const missing = missingForContinuity();
describe.skipIf(missing !== null)(titled('upgrade of a running mount', missing), () => {
  let mount: MountFixture;
  const scratch = mkdtempSync(join(tmpdir(), 'cfs-upgrade-'));
  const versions = { one: copyOf('9.0.1'), two: copyOf('9.0.2') };
  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--continuity'] });
  });
  afterAll(async () => {
    await mount?.dispose();
    rmSync(scratch, { recursive: true, force: true });
  });

  /** A copy of the built program that says another version. */
  function copyOf(version: string): string {
    const copy = join(scratch, version);
    mkdirSync(copy);
    cpSync(join(REPOSITORY, 'dist'), join(copy, 'dist'), { recursive: true });
    for (const name of ['node_modules', 'native-deps']) symlinkSync(join(REPOSITORY, name), join(copy, name));
    const manifest = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8')) as object;
    writeFileSync(join(copy, 'package.json'), JSON.stringify({ ...manifest, version }));
    return copy;
  }

  /** `cfs-mount` of a copy, on the directory that is mounted. */
  function mountWith(copy: string, flags: readonly string[] = ['--continuity']): Promise<CommandResult> {
    const program = join(copy, 'dist/cli/cfs-mount.js');
    return runCommand([process.execPath, program, mount.directory, ...flags], { env: mount.env(), anyExitCode: true });
  }

  function replaceIn(file: string, from: string, to: string): void {
    const text = readFileSync(file, 'utf8');
    if (!text.includes(from)) throw new Error(`${file} has no ${from}`);
    writeFileSync(file, text.replace(from, to));
  }

  test('upgrades of a running mount delay calls, and no call fails or takes effect twice', {
    timeout: UPGRADES * 30_000 + 60_000,
  }, async () => {
    onTestFailed(() => mount.printLogs());
    const stop = join(scratch, 'stop');
    await mount.run('mkdir load');
    const load = spawn(process.execPath, [LOAD, join(mount.directory, 'load'), String(LOAD_MS_MAX), '1', stop], {
      cwd: '/',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const lines: string[] = [];
    createInterface(load.stdout).on('line', (line) => lines.push(line));
    const ended = new Promise<void>((resolve) => load.on('close', () => resolve()));
    await vi.waitUntil(() => lines.length > 0, { timeout: 60_000, interval: 20 });
    const pauses: number[] = [];
    try {
      for (let upgrade = 0; upgrade < UPGRADES; upgrade++) {
        const { code, stdout, stderr } = await mountWith(upgrade % 2 === 0 ? versions.one : versions.two);
        expect(`${code} ${stdout}${stderr}`).toMatch(/^0 upgraded .* from version .* to 9\.0\.[12]; programs waited/);
        const status = await mount.followed();
        expect(status).toMatchObject({
          version: upgrade % 2 === 0 ? '9.0.1' : '9.0.2',
          continuity: { deaths: 0, upgrades: upgrade + 1 },
        });
        pauses.push(status.continuity?.lastPauseMs ?? Number.NaN);
      }
    } finally {
      writeFileSync(stop, '');
      await ended;
    }
    const { calls, wrong } = JSON.parse(lines.at(-1) ?? '{}');
    tellFigures(`upgrade: ${UPGRADES} upgrades, ${calls} calls, ${wrong?.length} wrong; pause ${percentiles(pauses)}`);
    expect(wrong).toEqual([]);
    expect(calls).toBeGreaterThan(100);
    expect((await mount.cfs(['status'])).stdout).toMatch(/upgraded {3}\d+ times while mounted; the last pause took/);
    await mount.run('rm -r load');
  });

  test.each([SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])(
    'a version with another layout of the store (%i) does not continue a running mount',
    async (layout) => {
      onTestFailed(() => mount.printLogs());
      const other = copyOf(`9.1.${layout}`);
      // The command is bundled, its constants are inlined. `cfs status` names versions, too.
      const named = join(other, 'dist/cli/chunk-status.cjs');
      replaceIn(named, `store: ${SCHEMA_VERSION},`, `store: ${layout},`);
      const { pid, version } = (await mount.followed()) as { pid: number; version: string };

      const { code, stderr } = await mountWith(other);

      expect(code).toBe(5);
      expect(stderr).toContain(
        `version 9.1.${layout} cannot continue the running mount of version ${version}, because it stores data in another layout: run cfs umount, then mount again`,
      );
      expect((await mount.followed()).pid).toBe(pid);
    },
  );

  test.each([
    { what: 'ends immediately', file: 'mounting-process.cjs', from: '', to: 'process.exit(3);' },
    {
      ...{ what: 'fails when its turn comes', file: 'mount-worker.bundle.cjs' },
      ...{ from: 'async open(keeper) {', to: "async open(keeper) { throw new Error('broken');" },
    },
  ])('the former version continues if the new one $what', async ({ what, file, from, to }) => {
    onTestFailed(() => mount.printLogs());
    const broken = copyOf(`9.2.${what.length}`);
    replaceIn(join(broken, 'dist/mount', file), from, to);
    const { version } = await mount.followed();

    const { code, stderr } = await mountWith(broken);

    expect(code).toBe(1);
    expect(stderr).toMatch(/cannot continue the mount|did not start, and version .* continues the mount/);
    expect((await mount.followed()).version).toBe(version);
    expect((await mount.run('echo kept > kept; cat kept')).stdout).toBe('kept\n');
  });

  test('an upgrade with an option that a mount cannot change is refused, and a second mount of the same version too', async () => {
    onTestFailed(() => mount.printLogs());
    const { version } = await mount.followed();
    const other = version === '9.0.1' ? versions.two : versions.one;

    const changed = await mountWith(other, ['--continuity', '--read-only']);
    expect(changed.code).toBe(5);
    expect(changed.stderr).toContain('a mount cannot change --read-only while it runs');

    await mountWith(other);
    const again = await mountWith(other);
    expect(again.code).toBe(5);
    expect(again.stderr).toContain('mounted already');
    expect((await mount.followed()).version).not.toBe(version);
  });
});
