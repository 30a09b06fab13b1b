import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { runScript } from '../harness/command.ts';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingPrograms, titled } from '../harness/requirement.ts';
import { missingForContinuity } from './killed-under-load.ts';

/** Of the repository. `npm run soak -- continuity` takes 5,000. */
const FILES = Number(process.env.CFS_FILES ?? '60');
const ROWS = FILES * 2;
/** From the successor's first answer to its death. */
const KILL_AFTER_MS = Number(process.env.CFS_TEST_KILL_AFTER_MS ?? '500');
/** In each scene; `npm run soak -- continuity` kills as long as programs run. */
const DEATHS_MAX = Number(process.env.CFS_TEST_DEATHS ?? '2');
/** In user-mode Linux, a process takes up to half a minute to start. */
const RUN_MS_MAX = 60_000 + FILES * 200 + Math.min(DEATHS_MAX, 60) * 60_000;

/** Each script ends with 0 only if what it wrote is what it reads. `$source` is the repository, on the local disk. */
const SCRIPTS = {
  'git clone': `git clone -q "$source" clone; git -C clone fsck --strict; test -z "$(git -C clone status --porcelain)"
    diff -r --exclude=.git "$source" clone`,
  'cp, tar and rsync': `cp -r "$source" copy; diff -r "$source" copy; tar cf copy.tar copy; mkdir out; tar xf copy.tar -C out
    diff -r "$source" out/copy; rsync -a copy/ again/; diff -r "$source" again; rm -r copy out; test ! -e copy`,
  sqlite3: `for mode in delete wal; do
      sqlite3 $mode.db "PRAGMA journal_mode=$mode; CREATE TABLE t(x);" > /dev/null
      for i in $(seq 1 ${Math.ceil(ROWS / 10)}); do
        sqlite3 $mode.db "INSERT INTO t SELECT value FROM generate_series(1, 10);"
      done
      test "$(sqlite3 $mode.db 'SELECT count(*) FROM t; PRAGMA integrity_check;' | tr '\\n' ' ')" = "${Math.ceil(ROWS / 10) * 10} ok "
    done`,
} as const;

const missing = missingForContinuity() ?? missingPrograms('git', 'rsync', 'sqlite3', 'tar');
describe.skipIf(missing !== null)(titled('programs over deaths', missing), () => {
  let mount: MountFixture;
  const source = mkdtempSync(join(tmpdir(), 'cfs-repository-'));
  beforeAll(async () => {
    const commit = 'git -c user.name=x -c user.email=x@example.com commit -qm all';
    await runScript(
      `git init -q . && for i in $(seq 1 ${FILES}); do mkdir -p folder-$((i % 20)); seq 1 $((i % 700 + 1)) > folder-$((i % 20))/file-$i; done
      git add . && ${commit}`,
      { directory: source, timeoutMs: RUN_MS_MAX },
    );
    mount = await MountFixture.start({ flags: ['--continuity'], env: { CFS_TEST_KEEPER_UNLIMITED: '1' } });
  });
  afterAll(async () => {
    await mount?.dispose();
    rmSync(source, { recursive: true, force: true });
  });

  test.each(Object.keys(SCRIPTS) as (keyof typeof SCRIPTS)[])(
    '%s: all succeeds although the mount process is killed under load',
    { timeout: 2 * RUN_MS_MAX },
    async (name) => {
      onTestFailed(() => mount.printLogs());
      let isOver = false;
      const script = `set -e; source=${source}; ${SCRIPTS[name]}`;
      const running = mount.run(script, { timeoutMs: RUN_MS_MAX, anyExitCode: true }).finally(() => {
        isOver = true;
      });
      let deaths = 0;
      do {
        await new Promise((resume) => setTimeout(resume, KILL_AFTER_MS));
        await mount.killAndContinue();
        deaths++;
      } while (!isOver && deaths < DEATHS_MAX);
      const { code, stderr } = await running;

      tellFigures(`${name}: ${deaths} deaths`);
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    },
  );
});
