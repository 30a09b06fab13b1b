import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';

/**
 * What work costs the service: requests that it was really asked, counted by the server. How full the account is (`/user/…`) is
 * asked for by time and not by work.
 */

const FILES = 1_000;
const FOLDERS = 8;
const TTL_MS = 500;
const missing = missingForMounts();

describe.skipIf(missing !== null)(`requests to the service${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let own: MountFixture;
  beforeAll(async () => {
    own = await MountFixture.start({ flags: ['--dir-ttl', '1h'], serverFlags: ['--log-level', 'debug'] });
    await own.run('ls');
  });
  afterAll(() => own?.dispose());

  const isListing = (request: string): boolean => request.endsWith('/contents');

  /** What the service was asked meanwhile. */
  async function askedBy(work: () => Promise<unknown>): Promise<string[]> {
    const before = (await own.server.requestsSoFar()).length;
    await work();
    return (await own.server.requestsSoFar()).slice(before).filter((request) => !request.startsWith('GET /user/'));
  }

  test('two for each new file, one for each folder and one listing of it; one for a rename; few for rm -r', {
    timeout: 240_000,
  }, async () => {
    onTestFailed(own.printLogs);
    const archive = `${own.directory}.tar`;
    await runCommand([
      'sh',
      '-euc',
      `cd "$(mktemp -d)"; mkdir tree; for d in $(seq ${FOLDERS}); do mkdir tree/$d; for f in $(seq ${FILES / FOLDERS}); do
        head -c $((100 + d * f)) /dev/zero > tree/$d/$f; done; done; tar -cf "$1" tree; rm -r "$PWD"`,
      'archive',
      archive,
    ]);

    const unpacked = await askedBy(async () => {
      await own.run(`tar -xf '${archive}'`);
      await own.sync();
    });
    expect((await own.server.reader.entries()).size).toBe(FILES + FOLDERS + 1);
    expect(unpacked.filter((request) => !isListing(request)).length).toBeLessThanOrEqual(2 * FILES + FOLDERS + 1);

    const renamed = await askedBy(async () => {
      await own.run('mv tree moved');
      await own.sync();
    });
    expect(renamed.filter((request) => !isListing(request))).toEqual([expect.stringMatching(/^PUT \/folder\/[^/]+$/)]);
    // The sizes of what was sent are confirmed by a listing: of each folder one, sooner or later.
    const listings = [...unpacked, ...renamed].filter(isListing);
    expect(listings.toSorted()).toEqual([...new Set(listings)].toSorted());

    const removed = await askedBy(async () => {
      await own.run('rm -r moved');
      await own.sync();
    });
    expect(await own.server.reader.list()).toEqual([]);
    expect(removed.length).toBeLessThanOrEqual(20);
  });

  test('none for what was made, written, renamed and deleted before its push', async () => {
    onTestFailed(own.printLogs);
    await own.unmount();
    await own.mount(['--dir-ttl', '1h', '--settle', '1h']); // nothing is pushed until it is told to

    const asked = await askedBy(async () => {
      await own.run('mkdir -p a/b; echo bytes > a/b/f; echo more >> a/b/f; mv a/b/f a/g; ln -s f a/l; rm -r a');
      await own.sync();
    });

    // The folder above, which is in use, is looked at now and then.
    expect(asked.filter((request) => !isListing(request))).toEqual([]);
  });

  test('one listing at most per folder in use and --dir-ttl, none of folders that nobody looks at', async () => {
    onTestFailed(own.printLogs);
    await own.run('mkdir used quiet; echo one > used/f; echo two > quiet/f');
    await own.sync();
    const folders = [...(await own.server.reader.entries()).values()];
    const requestFor = (name: string): string =>
      `GET ${new URL(folders.find(({ path }) => path === name)?.url ?? '').pathname}/contents`;
    await own.unmount();
    await own.mount(['--dir-ttl', `${TTL_MS}ms`]);

    const begunMs = performance.now();
    const asked = await askedBy(() =>
      own.run(`for i in $(seq 30); do ls used > /dev/null; cat used/f > /dev/null; sleep 0.1; done`),
    );
    const ttls = (performance.now() - begunMs) / TTL_MS;

    const count = (name: string): number => asked.filter((request) => request === requestFor(name)).length;
    expect(count('used')).toBeGreaterThan(0);
    expect(count('used')).toBeLessThanOrEqual(ttls + 1);
    expect(count('quiet')).toBe(0);
  });
});
