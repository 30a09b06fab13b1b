import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { type CallError, O_CREAT, O_RDONLY, O_WRONLY } from '../conformance/file-api.ts';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

const DIR_TTL_MS = 1_000;
const OPENS = 300;
/** One wait of --open-wait (500 ms), and what a busy machine takes for the rest; waiting each time would be 150 s. */
const OPENS_MS_MAX = 60_000;

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
    await mount.server.pause();
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
      await expect
        .poll(async () => (await mount.status())?.connection.state, { timeout: 60_000, interval: 250 })
        .toBe('offline');
    } finally {
      mount.server.resume();
    }
    const wanted = await treeDigests(mount);
    await mount.sync();

    expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
    expect((await mount.status())?.connection.state).toBe('online');
  });
});

const FILES = 500;
const READERS = 8;
/** In the folder whose listing is under way; `npm run soak -- hanging` has 100,000. */
const ENTRIES = Number(process.env.CFS_ENTRIES ?? 600);
/** In soak, on a machine of one's own. */
const P99_MS_MAX = process.env.CFS_P99_MS === undefined ? null : Number(process.env.CFS_P99_MS);

describe.skipIf(missing !== null)(`a server that stops${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let server: ReferenceServer;
  let mount: MountFixture;
  beforeAll(
    async () => {
      server = await ReferenceServer.start();
      const { reader } = server;
      const { root } = await reader.places();
      const made = async (folder: string, document: string) =>
        (await reader.send('POST', folder, document)).headers.get('location') ?? '';
      const large = await made(root, '<folder><displayName>large</displayName></folder>');
      for (let n = 0; n < READERS; n++) {
        const file = await made(large, `<file><displayName>f${n}</displayName><mediaType/></file>`);
        await reader.send('PUT', `${file}/data`, Buffer.alloc(3_000_000, `${n}`));
      }
      const many = await made(root, '<folder><displayName>many</displayName></folder>');
      for (let n = 0; n < ENTRIES; n += READERS) {
        const some = Array.from({ length: READERS }, (_, at) => n + at);
        await Promise.all(some.map((at) => made(many, `<folder><displayName>e${at}</displayName></folder>`)));
      }
    },
    30_000 + ENTRIES * 20,
  );
  afterAll(async () => {
    await mount?.dispose();
    await server?.dispose();
  });

  /** @returns how long each took, sorted, in milliseconds */
  async function saved(folder: string, writer: SyscallProcess): Promise<readonly number[]> {
    await writer.mkdir(folder);
    const tookMs: number[] = [];
    for (let n = 0; n < FILES; n++) {
      const begun = performance.now();
      const fd = await writer.open(`${folder}/new`, O_CREAT | O_WRONLY, 0o644);
      await writer.write(fd, 0, Buffer.from(`file ${n}`));
      await writer.close(fd);
      await writer.rename(`${folder}/new`, `${folder}/f${n}`);
      tookMs.push(performance.now() - begun);
    }
    expect((await writer.readdir(folder)).length).toBe(FILES);
    return tookMs.sort((a, b) => a - b);
  }

  test.each([
    ['a stopped server', 'the listing waits', () => server.pause(), () => server.resume()],
    [
      'a server that answers no read',
      'the main thread works at the listing',
      () => server.setFaults([{ on: 'GET', path: 'fileVersionData', times: 'always', then: { hang: true } }]),
      async () => {
        await server.setFaults([]);
        // What hangs would do so until somebody gives up.
        await server.kill9();
        await server.restart();
      },
    ],
  ] as const)(
    `${FILES} files are made and renamed while ${READERS} reads hang at %s and %s`,
    async (trouble, _meanwhile, begin, end) => {
      onTestFailed(() => mount.printLogs());
      // Nothing is here: each test is the first to read and to list.
      mount = await MountFixture.start({ server });
      const start = () => SyscallProcess.start(mount.directory);
      const [writer, lister] = [await start(), await start()];
      await lister.readdir('large');
      const readers = await Promise.all(Array.from({ length: READERS }, start));
      const opened = await Promise.all(readers.map((reader, n) => reader.open(`large/f${n}`, O_RDONLY)));
      await begin();
      const outcome = (call: Promise<unknown>) =>
        call.then(
          () => 'done',
          (error: CallError) => error.errno,
        );
      let isListed = false;
      const hanging = readers.map((reader, n) => outcome(reader.read(opened[n] ?? -1, 2_000_000, 100)));
      const listing = lister.readdir('many').finally(() => {
        isListed = true;
      });

      const tookMs = await saved('mine', writer);

      const at = (part: number) => tookMs[Math.floor(tookMs.length * part)] ?? 0;
      const figures = `p50 ${at(0.5).toFixed(1)} ms, p99 ${at(0.99).toFixed(1)} ms`;
      tellFigures(`create, write, close, rename beside ${trouble}: ${figures}; listed meanwhile: ${isListed}`);
      if (P99_MS_MAX !== null) expect(at(0.99)).toBeLessThanOrEqual(P99_MS_MAX);
      await end();
      // Whoever was caught goes on, or hears of it, and so does the listing.
      for (const one of await Promise.all(hanging)) expect(['done', 'ETIMEDOUT']).toContain(one);
      expect((await listing).length).toBe(Math.ceil(ENTRIES / READERS) * READERS);
      for (const process of [writer, lister, ...readers]) await process.dispose();
      await mount.sync();
      const pushed = [...(await server.reader.filledDigests()).keys()].filter((name) => name.startsWith('mine/f'));
      expect(pushed.length).toBe(FILES);
      await mount.run('rm -r mine');
      await mount.sync();
      await mount.dispose();
    },
  );
});
