import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { loadAddon } from '../../src/base/native.ts';
import { runCommand } from '../harness/command.ts';
import { missingAddon, missingPrograms, testUnless } from '../harness/requirement.ts';
import { PROJECT, textOf } from '../imports.ts';

/** The package for arm64, built on another machine, under qemu-user: `npm run soak -- packages`. */

const LIBRARIES = '/usr/aarch64-linux-gnu';
const missing =
  process.env.CFS_DEBIAN_RELEASES === undefined
    ? 'npm run soak -- packages'
    : (missingPrograms('aarch64-linux-gnu-gcc', 'qemu-aarch64-static', 'dpkg-deb') ?? missingAddon());
const { version } = JSON.parse(textOf('package.json')) as { version: string };
const BUILD_MS_MAX = 600_000;

let directory: string;
let program: string;
const run = (...argv: readonly string[]) =>
  runCommand(['qemu-aarch64-static', '-L', LIBRARIES, join(program, 'bin/node'), ...argv], { timeoutMs: 100_000 });

beforeAll(async () => {
  if (missing !== null) return;
  directory = mkdtempSync(join(tmpdir(), 'cfs-arm64-'));
  const argv = [
    process.execPath,
    join(PROJECT, 'scripts/package.mjs'),
    '--arch',
    'arm64',
    '--fast',
    '--out',
    directory,
  ];
  await runCommand(argv, { timeoutMs: BUILD_MS_MAX });
  mkdirSync(join(directory, 'tree'));
  const file = join(directory, `cfs-mount_${version}-1_arm64.deb`);
  await runCommand(['dpkg-deb', '-x', file, join(directory, 'tree')], { timeoutMs: 100_000 });
  program = join(directory, 'tree/usr/lib/cfs-mount/package');
}, 2 * BUILD_MS_MAX);

afterAll(() => {
  if (missing === null) rmSync(directory, { recursive: true });
});

const check = testUnless(missing);

check('all programs inside are for arm64', () => {
  for (const path of ['bin/node', 'native-deps/fuse-kernel/prebuilds/linux-arm64/fuse-kernel.node'])
    expect(readFileSync(join(program, path)).readUInt16LE(18), path).toBe(183); // elf(5): EM_AARCH64
  expect(existsSync(join(program, 'native-deps/fuse-kernel/prebuilds/linux-x64'))).toBe(false);
});

check(
  'the addon has the functions of this machine, among them crc32 and the receiver, and they give the same',
  async () => {
    const { stdout } = await run(join(PROJECT, 'test/packages/arm64-parts.mjs'), program);

    expect(JSON.parse(stdout)).toEqual({
      architecture: 'arm64',
      functions: expect.arrayContaining([...Object.keys(loadAddon<object>()), 'crc32', 'openReceiver']),
      sums: 44,
      isRead: true,
      allocated: true,
      stored: 'value',
    });
  },
);

check('the programs start', async () => {
  const { stdout } = await run(join(program, 'dist/cli/cfs.js'), '--version');

  expect(stdout).toMatch(new RegExp(`^${version}-1 \\(Node [\\d.]+\\)\\n$`));
});
