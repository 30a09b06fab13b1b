import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { runCommand, runScript } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';

/**
 * A file of which every 32nd byte was written anew lies in 65,536 pieces, more for one read than writev(2) takes. With O_DIRECT a read
 * of 1 MiB, the longest, comes as it is; through the page cache it is what the kernel reads ahead.
 */

const FILE_BYTES = 1024 * 1024;
const STRIDE_BYTES = 32;

const WHOLE = `fs.writeFileSync(file, Buffer.alloc(${FILE_BYTES}, 'what lies below '))`;
const STRIDED = `
  const fd = fs.openSync(file, 'r+');
  for (let at = 0; at < ${FILE_BYTES}; at += ${STRIDE_BYTES}) fs.writeSync(fd, Buffer.of(at / ${STRIDE_BYTES}), 0, 1, at);
  fs.closeSync(fd)`;

let plain: string;
let mount: MountFixture;

beforeAll(async () => {
  plain = mkdtempSync(join(tmpdir(), 'cfs-pieces-'));
  mount = await MountFixture.start();
});
afterAll(async () => {
  await mount?.dispose();
  rmSync(plain, { recursive: true, force: true });
});

/** In both places. */
async function node(script: string): Promise<void> {
  const program = `const fs = require('node:fs'); const [file] = process.argv.slice(1); ${script}`;
  for (const directory of [plain, mount.directory])
    await runCommand([process.execPath, '-e', program, join(directory, 'file')], { timeoutMs: 120_000 });
}

/** [S-read-1] */
test.each([
  { how: 'with O_DIRECT', read: 'dd if=file bs=1M iflag=direct status=none' },
  // What the kernel kept of the writes goes first.
  { how: 'through the page cache', read: 'dd if=file iflag=nocache count=0 status=none && cat file' },
])('a file of thousands of pieces is read completely $how, before and after its push', async ({ read }) => {
  onTestFailed(mount.printLogs);
  const look = `{ ${read} || echo FAILED; } | sha256sum`;
  await node(WHOLE);
  await mount.sync();
  await node(STRIDED);
  const { stdout: expected } = await runScript('sha256sum < file', { directory: plain });

  expect((await mount.run(look)).stdout).toBe(expected);
  await mount.sync();
  expect((await mount.run(look)).stdout).toBe(expected);
});
