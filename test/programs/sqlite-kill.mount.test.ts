import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

const ROUNDS = Number(process.env.CFS_RUNS ?? 2);
/** That sqlite3 has acknowledged when the mount is killed. */
const ROWS = 10;
const absent = spawnSync('sh', ['-c', 'command -v sqlite3'], { stdio: 'ignore' }).status === 0 ? null : 'sqlite3';
const missing = missingForMounts() ?? absent;

/**
 * A database is written to, transaction by transaction, when the mount is killed. What sqlite3 had acknowledged before is in the
 * database of the next life, whose integrity holds: with a rollback journal, and with a write-ahead log in a shared mapping.
 */
describe.skipIf(missing !== null)(`sqlite3 and SIGKILL${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  beforeAll(async () => {
    mount = await MountFixture.start();
  });
  afterAll(() => mount?.dispose());

  test.each(['delete', 'wal'])(
    'journal_mode=%s: the committed rows are there, and the database is whole',
    { timeout: 120_000 + ROUNDS * 30_000 },
    async (mode) => {
      onTestFailed(() => mount.printLogs());
      await mount.run(
        `sqlite3 ${mode}.db 'pragma journal_mode=${mode}; create table t(n integer primary key, s text);'`,
      );
      let inserted = 0;
      for (let round = 1; round <= ROUNDS; round++) {
        const acknowledged = `/tmp/cfs-sqlite-${process.pid}-${mode}`;
        // The last insert before the kill may be committed without having said so.
        const { stdout } = await mount.run(
          `: > ${acknowledged}
         (while sqlite3 ${mode}.db "insert into t(s) values(hex(randomblob(500)))"; do echo done >> ${acknowledged}; done) 2> /dev/null &
         writer=$!
         until [ "$(wc -l < ${acknowledged})" -ge ${ROWS} ]; do sleep 0.01; done
         kill -9 ${mount.pid}; wait $writer || true
         wc -l < ${acknowledged}; rm ${acknowledged}`,
          { timeoutMs: 100_000 },
        );
        await mount.gone();
        await mount.mount();

        const { stdout: rows } = await mount.run(`sqlite3 ${mode}.db 'pragma integrity_check; select count(*) from t'`);
        const [integrity, count] = rows.trim().split('\n');
        expect(integrity).toBe('ok');
        const before = inserted;
        inserted = Number(count);
        expect(inserted - before).toBeGreaterThanOrEqual(Number(stdout));
        expect(inserted - before).toBeLessThanOrEqual(Number(stdout) + 1);
      }
      await mount.sync();
      expect(treeDifferences(await mount.serverTree(), await treeDigests(mount))).toEqual([]);
      tellFigures(`sqlite3, journal_mode=${mode}: ${ROUNDS} kills, ${inserted} rows committed, none lost`);
    },
  );
});
