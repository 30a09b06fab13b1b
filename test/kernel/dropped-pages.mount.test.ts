import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { missingForContinuity } from '../crash/killed-under-load.ts';
import { runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingRoot, titled } from '../harness/requirement.ts';

const SOURCE = new URL('./held-write.c', import.meta.url).pathname;
const PAGE = 4096;

const missing = missingForContinuity() ?? missingRoot();
describe.skipIf(missing !== null)(titled('the pages of a write(2) that is under way', missing), () => {
  const scratch = mkdtempSync(join(tmpdir(), 'cfs-held-write-'));
  const program = join(scratch, 'held-write');
  let mount: MountFixture;
  beforeAll(async () => {
    await runCommand([process.env.CC ?? 'cc', '-O1', '-Wall', '-pthread', '-o', program, SOURCE]);
    mount = await MountFixture.start({ flags: ['--continuity'] });
  });
  afterAll(async () => {
    await mount?.dispose();
    rmSync(scratch, { recursive: true, force: true });
  });

  test('are read as they were written, although the first open(2) after a death has dropped them', async () => {
    onTestFailed(() => mount.printLogs());
    const bytes = (letter: string) => Buffer.alloc(2 * PAGE, letter).toString();
    // The second `cat` leaves the pages in the kernel.
    await mount.run(`head -c ${2 * PAGE} /dev/zero | tr '\\0' b > file; cat file file > /dev/null`);
    const writer = spawn(program, [join(mount.directory, 'file')], { stdio: ['pipe', 'pipe', 'inherit'], cwd: '/' });
    const lines = createInterface(writer.stdout)[Symbol.asyncIterator]();
    const ended = once(writer, 'close');
    try {
      expect((await lines.next()).value).toBe('held');
      await mount.killAndContinue();

      expect((await mount.run('cat file')).stdout).toBe(bytes('b'));
      await new Promise((resume) => setTimeout(resume, 1_500)); // the kernel of an overloaded machine may take that long
      writer.stdin.end('\n');
      expect((await lines.next()).value).toBe('written');

      expect((await mount.run('cat file')).stdout).toBe(bytes('w'));
    } finally {
      writer.stdin.end();
      await ended;
    }
  });
});
