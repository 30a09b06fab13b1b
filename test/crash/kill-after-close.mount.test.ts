import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { pattern } from '../conformance/workplace.ts';
import { runCommand } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

const ROUNDS = Number(process.env.CFS_RUNS ?? 10);
const READY_MS_MAX = 30_000;
/** Kept with its name, a little more than that, a block and a byte, and several blocks. */
const SIZES = [1, 700, 16_384, 16_385, 131_073, 1_000_000, 5_000_000];

/**
 * What close() accepted survives SIGKILL of the mount. A shell closes the files and kills the process in its next step, in
 * the same script, so that nothing has time to happen in between. A round in which the service had everything before the
 * kill would prove nothing: the settle time of a minute keeps it from that, and it is asserted.
 */
const missing = missingForMounts();
describe.skipIf(missing !== null)(
  `SIGKILL right after close(), ${ROUNDS} times in a row${missing === null ? '' : ` (needs: ${missing})`}`,
  () => {
    let mount: MountFixture;
    let source = '';
    const wanted = new Map<string, string>();
    beforeAll(async () => {
      mount = await MountFixture.start({ flags: ['--settle', '1m'] });
      source = (await runCommand(['mktemp', '-d'])).stdout.trim();
    });
    afterAll(async () => {
      await mount?.dispose();
      if (source !== '') await runCommand(['rm', '-r', source]);
    });

    for (let round = 1; round <= ROUNDS; round++) {
      test(`round ${round}`, { timeout: 240_000 }, async () => {
        onTestFailed(() => mount.printLogs());
        const folder = `round ${round}`;
        wanted.set(`${folder}/`, 'folder');
        for (const [index, size] of SIZES.entries()) {
          const bytes = pattern(size, round * 100 + index);
          await writeFile(path.join(source, `f${size}`), bytes);
          wanted.set(`${folder}/f${size}`, createHash('sha256').update(bytes).digest('hex'));
        }
        // An existing file is written anew, one is changed in the middle, one takes the place of another, one loses its name.
        const first = Buffer.from(`rewritten in round ${round}`);
        wanted.set('rewritten', createHash('sha256').update(first).digest('hex'));
        const saved = pattern(40_000, round);
        await writeFile(path.join(source, 'saved'), saved);
        wanted.set('saved', createHash('sha256').update(saved).digest('hex'));
        const patched = pattern(400_000, 7);
        for (let earlier = 1; earlier <= round; earlier++) Buffer.from(`<${earlier}>`).copy(patched, earlier * 30_000);
        await writeFile(path.join(source, 'patched'), pattern(400_000, 7));
        wanted.set('patched', createHash('sha256').update(patched).digest('hex'));
        wanted.set(`${folder}/link`, '-> ../saved');

        await mount.run(
          `mkdir '${folder}'
           for f in '${source}'/f*; do cp "$f" '${folder}/'; done
           printf %s '${first}' > rewritten
           if [ ! -e patched ]; then cp '${source}/patched' patched; fi
           printf '<${round}>' | dd of=patched bs=1 seek=${round * 30_000} conv=notrunc status=none
           ln -s ../saved '${folder}/link'
           : > gone; rm gone
           cp '${source}/saved' .saved.tmp; mv .saved.tmp saved
           kill -9 ${mount.pid}`,
        );
        await mount.gone();
        const before = await mount.serverTree();
        expect(before.get(`${folder}/f5000000`), 'a round only counts while something was pending').toBeUndefined();

        const started = performance.now();
        await mount.mount();
        expect(performance.now() - started, 'milliseconds until it is back').toBeLessThan(READY_MS_MAX);

        expect(treeDifferences(await treeDigests(mount), wanted)).toEqual([]);
        await mount.sync();
        expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
      });
    }

    test('a second mount with an empty store has all of it', { timeout: 120_000 }, async () => {
      const second = await mount.freshStore();

      expect(treeDifferences(await treeDigests(second), wanted)).toEqual([]);
    });
  },
);
