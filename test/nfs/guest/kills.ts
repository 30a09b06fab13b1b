import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { tellFigures } from '../../harness/figures.ts';
import { TwinGround } from '../twin-ground.ts';

const KILLS = Number(process.env.CFS_NFS_KILLS ?? 2);
/** From the first answer of a process to its death. The guard gives up after five in a row that served for less than a second. */
const LIFE_MS = KILLS > 4 ? 3_000 : 1_500;
const LINES = KILLS > 4 ? 20_000 : 5_000;
const SCRIPT_MS_MAX = 120_000 + KILLS * 60_000;

let ground: TwinGround;
beforeAll(async () => {
  ground = await TwinGround.start();
});
afterAll(() => ground?.dispose());

/** Everything twice: on the mount, and in memory. */
const writer = (plain: string): string => `
  set -eu
  n=0
  while [ ! -e '${plain}.stop' ]; do
    n=$((n + 1))
    for there in . '${plain}'; do
      seq $n $((n + ${LINES})) > "$there/draft"
      mv "$there/draft" "$there/file $n"
      echo "line $n" >> "$there/log"
      mkdir "$there/folder $n"
      if [ $((n % 2)) = 0 ]; then rmdir "$there/folder $n"; else ln -s "../file $n" "$there/folder $n/link"; fi
      if [ $n -gt 40 ]; then rm "$there/file $((n - 40))"; fi
    done
    cmp "file $n" "${plain}/file $n"
    echo $n > '${plain}.written'
  done
  echo $n`;

/** Reads what was written last: each file whole, and each line of the log once. */
const reader = (plain: string): string => `
  set -eu
  reads=0
  while [ ! -e '${plain}.stop' ]; do
    n=$(cat '${plain}.written' 2> /dev/null || echo 0)
    if [ "\${n:-0}" -lt 2 ]; then sleep 0.1; continue; fi
    seq $n $((n + ${LINES})) | cmp - "file $n"
    seq 1 $n | sed 's/^/line /' | cmp - log -n $(seq 1 $n | sed 's/^/line /' | wc -c)
    ls > /dev/null
    reads=$((reads + 1))
  done
  echo $reads`;

test('SIGKILL of the mount under a writer and a reader causes no error, loses no byte and does nothing twice', {
  timeout: 2 * SCRIPT_MS_MAX,
}, async () => {
  const { mount, plain } = ground;
  onTestFailed(() => mount.printLogs());
  let isOver = false;
  const over = <T>(script: Promise<T>): Promise<T> =>
    script.finally(() => {
      isOver = true;
    });
  const scripts = [writer(plain), reader(plain)].map((script) => over(mount.run(script, { timeoutMs: SCRIPT_MS_MAX })));
  const done = Promise.all(scripts);
  done.catch(() => {});
  for (let kill = 0; kill < KILLS && !isOver; kill++) {
    await setTimeout(LIFE_MS);
    await mount.killAndContinue();
  }
  await setTimeout(LIFE_MS);
  await mount.run(`touch '${plain}.stop'`);
  const [writes, reads] = (await done).map(({ stdout }) => Number(stdout));
  expect(writes).toBeGreaterThan(KILLS);
  expect(reads).toBeGreaterThan(0);

  await ground.compare();
  const { code, stdout } = await mount.unmount();
  expect([code, stdout]).toEqual([0, `unmounted ${mount.directory}\n`]);
  tellFigures(`${KILLS} deaths of an NFS mount: ${writes} rounds of a writer, ${reads} of a reader`);
});
