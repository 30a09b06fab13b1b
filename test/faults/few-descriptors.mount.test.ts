import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';

/** A mount whose process may have 200 descriptors, and a program that opens more files at once than that. */

const MOUNT = path.resolve('dist/cli/cfs-mount.js');
const COUNT = 190;
/** Opens them all, fills each, says how many it got and why not more, and closes them when it is told to. */
const OPENER = `
const fs = require('node:fs');
const [folder, count] = process.argv.slice(1);
const open = [];
let refusal = 'none';
try {
  for (let n = 0; n < Number(count); n++) {
    open.push(fs.openSync(folder + '/f' + n, 'w'));
    fs.writeSync(open.at(-1), Buffer.alloc(200_000, n));
  }
} catch (error) {
  refusal = error.code;
}
require('node:child_process').execFileSync('sh', ['-c', process.env.MEANWHILE], { stdio: 'inherit' });
for (const fd of open) fs.closeSync(fd);
console.log(open.length, refusal);
`;

const missing = missingForMounts();

describe.skipIf(missing !== null)(`with 200 descriptors${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;

  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--settle', '100ms'] });
    await mount.unmount();
    const start = `ulimit -n 200; exec "${process.execPath}" "${MOUNT}" "${mount.directory}" --settle 100ms`;
    await runCommand(['sh', '-c', start], { env: mount.env() });
  });

  afterAll(async () => {
    await mount?.cfs(['umount', '--now'], { anyExitCode: true });
    await mount?.dispose();
  });

  test('in a burst of opens the last ones get ENFILE, the mount keeps answering, and the other files are pushed', async () => {
    onTestFailed(mount.printLogs);
    await mount.run('mkdir burst');
    const cfs = `"${process.execPath}" "${path.resolve('dist/cli/cfs.js')}" status --json > /dev/null; echo status $?`;

    const { stdout } = await runCommand(
      [process.execPath, '-e', OPENER, path.join(mount.directory, 'burst'), String(COUNT)],
      { env: { ...mount.env(), MEANWHILE: cfs } },
    );

    const [status, opened] = stdout.trim().split('\n');
    expect(status).toBe('status 0');
    expect(opened).toMatch(/^\d+ ENFILE$/);
    const kept = Number.parseInt(opened ?? '', 10);
    expect(kept).toBeGreaterThanOrEqual(64);
    await mount.sync();
    const service = await mount.serverTree();
    expect([...service.keys()].filter((name) => name.startsWith('burst/f')).length).toBeGreaterThanOrEqual(kept);
  });
});
