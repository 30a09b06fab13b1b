import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

const DIR_TTL_MS = 1_000;
const OPENS = 300;
/** One wait of --open-wait (500 ms), and what a busy machine takes for the rest; waiting each time would be 150 s. */
const OPENS_MS_MAX = 3_000;

const missing = missingForMounts();
describe.skipIf(missing !== null)(`a server that hangs${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--dir-ttl', `${DIR_TTL_MS}ms`] });
  });
  afterAll(() => mount?.dispose());

  test('makes neither opens nor saves slow, is told by the status, and gets everything when it goes on', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run(`mkdir d; for n in $(seq ${OPENS}); do echo "$n" > "d/f$n"; done`);
    await mount.sync();
    mount.server.pause();
    try {
      // Old by now: the folder was listed before the pause at the latest.
      const { stdout } = await mount.run(
        `sleep ${(2 * DIR_TTL_MS) / 1000}
        begun=$(date +%s%3N)
        for n in $(seq ${OPENS}); do read -r word < "d/f$n"; test "$word" = "$n" || exit 9; done
        opened=$(date +%s%3N)
        for n in $(seq 100); do echo "new $n" > d/new.tmp; mv d/new.tmp "d/new$n"; done
        echo $((opened - begun)) $(($(date +%s%3N) - opened))`,
        { timeoutMs: 120_000 },
      );

      const [opensMs, savesMs] = stdout.trim().split(' ').map(Number);
      expect(opensMs).toBeLessThan(OPENS_MS_MAX);
      expect(savesMs).toBeLessThan(OPENS_MS_MAX);
      await expect.poll(() => connectionOf(mount), { timeout: 20_000, interval: 250 }).toBe('offline');
    } finally {
      mount.server.resume();
    }
    const wanted = await treeDigests(mount);
    await mount.sync();

    expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
    expect(await connectionOf(mount)).toBe('online');
  });
});

async function connectionOf(mount: MountFixture): Promise<string | undefined> {
  const { stdout } = await mount.cfs(['status', '--json'], { anyExitCode: true });
  const { accounts } = JSON.parse(stdout) as {
    accounts: { status: { connection: { state: string } } | null }[];
  };
  return accounts[0]?.status?.connection.state;
}
