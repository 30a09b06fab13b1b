import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { type HandleId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { RequestRetry } from '../../src/content/request-retry.ts';
import { FileHistory } from '../../src/fs/file-history.ts';
import { VERSIONS_INODE, VersionsDirectory } from '../../src/fs/versions-directory.ts';
import type { Entry, OpenReply } from '../../src/kernel/binding.ts';
import { bytesOf } from '../../src/kernel/gathered-reply.ts';
import { openFlags, rawFlags } from '../../src/kernel/open-flags.ts';
import { Opcode } from '../../src/kernel/protocol.ts';
import { VersionService } from '../content/version-service.ts';
import { ContinuedSide } from '../harness/continued-side.ts';

const READ = openFlags(rawFlags('r'));
let life: ContinuedSide;
let versions: VersionsDirectory;
let service: VersionService;

beforeEach(async () => {
  service = new VersionService();
  service.put('file', Buffer.from('first'), 1_000_000);
  service.put('file', Buffer.from('the second'), 2_000_000);
  const clock = systemClock;
  const shutdown = new AbortController().signal;
  life = await ContinuedSide.start({ listing: service, source: service }, (side, state) => {
    const { tree, freshness, store, contents, reader, health } = side;
    const retry = new RequestRetry({ health, clock, log: silentLogger, shutdown, readTimeoutMs: 2_000 });
    const history = new FileHistory({ source: service, retry, clock });
    versions = new VersionsDirectory({ tree, freshness, history, store, contents, reader });
    versions.recordIn(state);
  });
  await life.side.freshness.ensureListed(ROOT_INODE, new AbortController().signal);
});
afterEach(() => life.close());

const ctx = (opcode: Opcode = Opcode.LOOKUP) => life.request(opcode, ROOT_INODE);

async function found(parent: Inode, name: string): Promise<Inode> {
  const { attributes } = (await versions.lookup(parent, name, ctx())) as Entry;
  return attributes?.ino as Inode;
}

async function listed(folder: Inode, handle: HandleId, cookie: number, max = 100) {
  const names: { name: string; cookie: number }[] = [];
  const add = (name: string, _ino: Inode, _kind: unknown, next: number) =>
    names.length < max && names.push({ name, cookie: next }) > 0;
  await versions.readdir(folder, handle, cookie, { wantsEntries: false, add });
  return names;
}

test('files and folders that are open in .versions continue over a death, beside files of the mount', async () => {
  const folder = await found(VERSIONS_INODE, 'file');
  const { handle: listing } = await versions.opendir(folder, ctx(Opcode.OPENDIR));
  const { handle: root } = await versions.opendir(VERSIONS_INODE, ctx(Opcode.OPENDIR));
  const names = await listed(folder, listing, 0, 3);
  const [, , newest] = names;
  const [, , , oldest] = await listed(folder, listing, 0);
  const ino = await found(folder, oldest?.name ?? '');
  const { handle } = (await versions.open(ino, READ)) as OpenReply;
  const inode = life.side.tree.child(ROOT_INODE, 'file')?.ino as Inode;
  const { handle: current } = await life.side.fileSystem.open(inode, READ, ctx(Opcode.OPEN));
  const before = versions.getattr(ino);
  await life.die();
  await life.die();

  const read = async (extent: number) => bytesOf(await versions.read(ino, handle, extent, 100, ctx(Opcode.READ)));
  expect((await read(0)).toString()).toBe('first');
  expect((await read(2)).toString()).toBe('rst');
  expect(await versions.getattr(ino)).toEqual(await before);
  expect(await listed(folder, listing, newest?.cookie ?? 0)).toEqual([oldest]);
  expect((await listed(VERSIONS_INODE, root, 0)).map(({ name }) => name)).toEqual(['.', '..', 'file']);
  const { fileSystem } = life.side;
  expect(bytesOf(await fileSystem.read(inode, current, 0, 100, ctx(Opcode.READ))).toString()).toBe('the second');
  expect([handle, listing].map((each) => versions.reopened(each)?.handle)).toEqual([handle, listing]);
  expect(fileSystem.reopened(folder, listing)).toBeNull(); // each handle has one owner

  versions.release(ino, handle);
  for (const each of [listing, root]) versions.releasedir(folder, each);
  await fileSystem.release(inode, current);
  await life.die();
  expect([...life.state.inherited()]).toEqual([]);
});
