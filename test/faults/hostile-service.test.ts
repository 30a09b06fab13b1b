import { afterAll, expect, onTestFailed, test } from 'vitest';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { checkStore } from '../../src/bytes/consistency-check.ts';
import { isContentDirty } from '../../src/store/node-table.ts';
import { checkEachRecord } from '../harness/checked-records.ts';
import { tellFigures } from '../harness/figures.ts';
import { seedsOf } from '../harness/seeds.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { FaultySide } from './faulty-side.ts';
import { HostileServer } from './hostile-server.ts';

/**
 * A program works on a mount of which the service tells anything. Each call ends with an answer or an errno of ours, nothing that
 * was closed and is not with the service goes, the store is sound after each record, and the token goes nowhere else.
 * `npm run soak -- hostile` has more seeds. When a call ends is not the seed's affair alone: one that failed may need some tries.
 */
const SEEDS = seedsOf([1, 5202]);
const CALLS = 120;
const WAITS = { readTimeoutMs: 600, silenceMs: 500 };
const ERRNOS =
  /^(ENOENT|ENOTDIR|EISDIR|EEXIST|ENOTEMPTY|EINVAL|ELOOP|ENAMETOOLONG|EACCES|EPERM|EIO|ETIMEDOUT|ESTALE|EBUSY|EXDEV|EFBIG)$/;
const NAMES = ['a', 'b', 'mine', 'other'];

let calls = 0;
let requests = 0;
afterAll(() => tellFigures(`hostile service: ${calls} calls, ${requests} requests, seeds ${SEEDS.join(' ')}`));

test.each(SEEDS)(
  'arbitrary answers of the service neither crash the mount nor damage local files (SEED=%i)',
  { timeout: 240_000 },
  async (seed) => {
    const random = new SeededRandom(seed);
    const server = await HostileServer.start(random);
    const user = {
      refreshToken: `${server.origin}/app-authorization/R`,
      application: '/sc/1/1',
      accessKeyId: 'key',
      privateAccessKey: 'private',
    };
    const { origin, root } = server;
    const side = await FaultySide.build({
      ...{ origin, user: user as never, waits: WAITS },
      root: root as ResourceUrl,
      shows: 'folder',
    });
    const trace: string[] = [];
    const findings = checkEachRecord(side.side.store, checkStore);
    onTestFailed(() => console.error(trace.slice(-20).join('\n')));
    const closed = new Map<Inode, Buffer>();
    const { mount } = side;
    try {
      for (let call = 0; call < CALLS; call++) {
        const paths = pathsOf(side).map(([each]) => each);
        const path = random.pick(paths);
        const free = `${random.pick(paths.filter((each) => each === '.' || random.next() < 0.3).concat('.'))}/${random.pick(NAMES)}`;
        const bytes = Buffer.from(random.bytes(random.pick([5, 20_000])));
        const [what, doing]: [string, () => Promise<unknown>] = random.pick([
          [`readdir ${path}`, () => mount.readdir(path)],
          [`readdir .`, () => mount.readdir('.')],
          [`stat ${path}`, () => mount.stat(path)],
          [`read ${path}`, () => read(path)],
          [`readlink ${path}`, () => mount.readlink(path)],
          [`write ${path}`, () => save(path, bytes)],
          [`make ${free}`, () => save(free, bytes)],
          [`mkdir ${free}`, () => mount.mkdir(free)],
          [`rename ${path} ${free}`, () => mount.rename(path, free)],
          [`unlink ${path}`, () => mount.unlink(path)],
          [`rmdir ${path}`, () => mount.rmdir(path)],
          ['refresh', () => side.side.freshness.refresh().catch(() => {})],
          ['retry', async () => side.sync.retry()],
        ]);
        const told = await doing().then(
          () => 'done',
          (error: { errno?: string; message: string }) => error.errno ?? `not an errno: ${error.message}`,
        );
        trace.push(`${what}: ${told}`);
        if (told !== 'done') expect(told, what).toMatch(ERRNOS);
        expect(findings, what).toEqual([]);
        calls += 1;
      }

      // Nothing changes any more.
      await side.sync.stop();
      side.side.freshness.stop();
      expect(findings).toEqual([]);
      const shown = new Map(pathsOf(side).map(([path, ino]) => [ino, path]));
      for (const [ino, bytes] of closed) {
        const node = side.side.store.get('node', ino);
        if (node?.local == null || !isContentDirty(node)) continue; // deleted here, or given to the service
        expect(await read(shown.get(ino) as string), `node ${ino}`).toEqual(bytes);
      }
      expect(server.stolen).toEqual([]);
    } finally {
      requests += server.requests;
      await side.close();
      await server.close();
    }

    async function read(path: string): Promise<Buffer> {
      const descriptor = await mount.open(path);
      try {
        return await mount.read(descriptor, 0, 32_768);
      } finally {
        await mount.close(descriptor);
      }
    }

    async function save(path: string, bytes: Buffer): Promise<void> {
      const descriptor = await mount.open(path, 'w+');
      try {
        await mount.write(descriptor, 0, bytes);
        closed.delete((await mount.fstat(descriptor)).ino);
      } finally {
        await mount.close(descriptor);
      }
      closed.set((await mount.lstat(path)).ino, bytes);
    }
  },
);

/** Everything that is shown, without asking anybody. */
function pathsOf({ side }: FaultySide): (readonly [path: string, ino: Inode])[] {
  const paths: (readonly [string, Inode])[] = [['.', ROOT_INODE]];
  const walk = (folder: Inode, path: string): void => {
    for (const { name, node } of side.tree.children(folder)) {
      paths.push([`${path}/${name}`, node.ino]);
      if (node.kind === 'folder') walk(node.ino, `${path}/${name}`);
    }
  };
  walk(ROOT_INODE, '.');
  return paths;
}
