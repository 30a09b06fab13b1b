import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { runScript } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

/** Real input: as many folders of /usr/share as it takes to have this much. Less in CI, which has less time. */
const FILES_MIN = Number(process.env.CFS_COPY_FILES ?? (process.env.CI ? 800 : 2_000));
const MIB_MIN = Number(process.env.CFS_COPY_MIB ?? (process.env.CI ? 30 : 100));
const SYSTEM = '/usr/share';

const missing = missingForMounts();
describe.skipIf(missing !== null)(
  `a copy of ${FILES_MIN} files${missing === null ? '' : ` (needs: ${missing})`}`,
  () => {
    let mount: MountFixture;
    /** A copy of them: packages come and go there. */
    let source = '';
    beforeAll(async () => {
      source = await mkdtemp(path.join(tmpdir(), 'cfs-copy-'));
      const names = (await chosenFolders()).map((folder) => `'./${folder}'`);
      await runScript(`cp -a ${names.join(' ')} '${source}'`, { directory: SYSTEM, timeoutMs: 120_000 });
      mount = await MountFixture.start();
    });
    afterAll(async () => {
      await mount?.dispose();
      await rm(source, { recursive: true, force: true });
    });

    test('cp -r brings everything in', { timeout: 600_000 }, async () => {
      onTestFailed(() => mount.printLogs());

      await mount.run(`cp -r '${source}' tree`, { timeoutMs: 500_000 });

      expect(treeDifferences(await treeDigests(mount, 'tree'), await digestsOf(source))).toEqual([]);
    });

    test('after cfs sync --wait the service has equal bytes, and nothing else', { timeout: 900_000 }, async () => {
      onTestFailed(() => mount.printLogs());

      await mount.cfs(['sync', '--wait'], { timeoutMs: 800_000 });

      expect(treeDifferences(await mount.serverTree(), await treeDigests(mount))).toEqual([]);
    });

    test('a mount with an empty store reads them back equal', { timeout: 600_000 }, async () => {
      onTestFailed(() => mount.printLogs());
      const second = await mount.freshStore();

      expect(treeDifferences(await treeDigests(second, 'tree'), await digestsOf(source))).toEqual([]);
    });

    test('after a restart everything is as it was, without a byte from the service', { timeout: 300_000 }, async () => {
      onTestFailed(() => mount.printLogs());
      await mount.unmount();
      await mount.server.kill9(); // what is here must be enough
      try {
        await mount.mount();

        expect(treeDifferences(await treeDigests(mount, 'tree'), await digestsOf(source))).toEqual([]);
      } finally {
        await mount.server.restart();
      }
    });

    test('rm -r takes everything away, here and on the service', { timeout: 300_000 }, async () => {
      onTestFailed(() => mount.printLogs());

      await mount.run('rm -r tree', { timeoutMs: 200_000 });
      await mount.sync();

      expect([...(await mount.serverTree()).keys()]).toEqual([]);
    });
  },
);

/** Folders of the system that have enough together and not much more, the same ones on the same system. */
async function chosenFolders(): Promise<string[]> {
  const { stdout } = await runScript(
    `for folder in *; do
       if [ -d "$folder" ] && [ ! -L "$folder" ]; then
         printf '%s %s %s\\n' "$(find "./$folder" -type f | wc -l)" "$(du -sk "./$folder" | cut -f1)" "$folder"
       fi
     done`,
    { directory: SYSTEM, timeoutMs: 120_000 },
  );
  const candidates = stdout
    .trim()
    .split('\n')
    .map((line) => {
      const [files, kibibytes, ...name] = line.split(' ');
      return { name: name.join(' '), files: Number(files), mebibytes: Number(kibibytes) / 1024 };
    })
    .filter(({ files, mebibytes }) => files > 0 && files < FILES_MIN && mebibytes < MIB_MIN);
  const chosen: typeof candidates = [];
  const sum = (of: 'files' | 'mebibytes') => chosen.reduce((total, folder) => total + folder[of], 0);
  // First what brings bytes with few files, then what brings files with few bytes.
  const bySize = candidates.toSorted((a, b) => b.mebibytes / b.files - a.mebibytes / a.files);
  while (sum('mebibytes') < MIB_MIN && bySize.length > 0) chosen.push(...bySize.splice(0, 1));
  while (sum('files') < FILES_MIN && bySize.length > 0) chosen.push(...bySize.splice(-1));
  const [files, mebibytes] = [sum('files'), Math.round(sum('mebibytes'))];
  const note = files < FILES_MIN || mebibytes < MIB_MIN ? ' (this system has no more there)' : '';
  console.log(`copying ${files} files, ${mebibytes} MiB: ${chosen.length} folders of ${SYSTEM}${note}`);
  return chosen.map(({ name }) => name);
}

function digestsOf(directory: string): Promise<Map<string, string>> {
  return treeDigests({ run: (script, options) => runScript(script, options) }, directory);
}
