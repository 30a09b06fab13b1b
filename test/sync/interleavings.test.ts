import { constants, existsSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import type { ContentId, Inode, ResourceUrl } from '../../src/base/vocabulary.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from './model-service.ts';

/** Saves that fall between two steps of a push: what is sent is whole, what was closed is sent, and nobody else's bytes are buried. */

const ANSWER = { type: 'answer' } as const;

let world: SyncedSide;
beforeEach(async () => {
  world = await SyncedSide.build();
});
afterEach(() => world.close());

/** Answers all requests until one waits whose name begins so. */
async function until(prefix: string): Promise<void> {
  const { service } = world;
  for (let round = 0; round < 60; round++) {
    await world.pass(2_000);
    if (service.pending.some(({ name }) => name.startsWith(prefix))) return;
    for (const request of service.pending.splice(0)) request.settle(ANSWER);
  }
  throw new Error(`nobody asks for ${prefix}`);
}

/** From now on, and what waits. */
function answerAll(): void {
  const { service } = world;
  service.auto = () => ANSWER;
  for (const request of service.pending.splice(0)) request.settle(ANSWER);
}

/** A file that the service has, and a save of it whose bytes wait to be answered. From now on all requests do. */
async function savedAndSent(base: string, change: string): Promise<void> {
  const { service, mount } = world;
  await mount.writeFile('file', Buffer.from(base));
  await world.converge();
  service.auto = null;
  await mount.writeFile('file', Buffer.from(change));
  await until('putVersionData');
}

async function untilParked(): Promise<void> {
  for (let round = 0; round < 60 && world.sync.status().parked.length === 0; round++) await world.pass(10_000);
  expect(world.sync.status().parked).toHaveLength(1);
}

async function patch(at: number, bytes: Buffer): Promise<void> {
  const fd = await world.mount.open('file', constants.O_RDWR);
  await world.mount.write(fd, at, bytes);
  await world.mount.close(fd);
}

const fileOf = (): ResourceUrl => world.service.childrenOf(MODEL_ROOT)[0]?.url as ResourceUrl;
const shown = (): (string | null)[] => [...world.service.tree().values()];

test('a file that is truncated during the comparison with its uploaded bytes is not pushed before it is closed', async () => {
  const { service, mount, side } = world;
  const bytes = Buffer.alloc(4 * 1024 * 1024, 'bytes');
  await mount.writeFile('file', bytes);
  await world.converge();
  bytes[bytes.byteLength - 1] = 0;
  await mount.writeFile('file', bytes);
  const readAll = side.contents.readAll.bind(side.contents);
  let opened: number | null = null;
  side.contents.readAll = (id, extent) => {
    side.contents.readAll = readAll;
    void mount.open('file', constants.O_WRONLY | constants.O_TRUNC).then(async (fd) => {
      await mount.write(fd, 0, Buffer.from('half'));
      opened = fd;
    });
    return readAll(id, extent);
  };
  for (let round = 0; round < 5; round++) await world.pass(2_000);

  expect(opened).not.toBeNull();
  const sizes = [...service.resources.values()].flatMap(({ versions }) =>
    versions.map((each) => each.bytes.byteLength),
  );
  expect(sizes).not.toContain(4);
  expect(sizes).not.toContain(0);

  await mount.write(opened as unknown as number, 4, Buffer.from(' and half'));
  await mount.close(opened as unknown as number);
  await world.converge();
  expect(shown()).toEqual(['half and half']);
});

test('a file renamed over another one while its bytes are compared leaves the upload of the other one alone', async () => {
  const { service, mount, side } = world;
  const bytes = Buffer.alloc(4 * 1024 * 1024, 'bytes');
  await mount.writeFile('new', bytes);
  await world.converge();
  await savedAndSent('base', 'change');
  bytes[bytes.byteLength - 1] = 0;
  await mount.writeFile('new', bytes);
  const readAll = side.contents.readAll.bind(side.contents);
  let renamed: Promise<unknown> | null = null;
  side.contents.readAll = (id, extent) => {
    renamed ??= mount.rename('new', 'file');
    return readAll(id, extent);
  };
  for (let round = 0; round < 5; round++) await world.pass(2_000);

  expect(renamed).not.toBeNull();
  const uploads = service.pending.filter(({ name }) => /^(put|version)/.test(name));
  expect(uploads.map(({ name }) => name.split(' ')[0])).toEqual(['putVersionData']);
  answerAll();
  await world.converge();
  expect(service.tree().get('/file')).toBe(bytes.toString());
});

test('a failed push counts for the file that was renamed over its file: that one is not pushed again immediately', async () => {
  const { service, mount } = world;
  await savedAndSent('base', 'change');
  await mount.writeFile('new', Buffer.from('newer'));
  await mount.rename('new', 'file');
  for (const request of service.pending.splice(0)) request.settle({ type: 'refuse', status: 500 });
  await world.pass(0);

  expect(service.pending).toEqual([]);
  answerAll();
  await world.converge();
  expect([...service.tree()]).toEqual([['/file', 'newer']]);
});

test('a save after an unacknowledged first PUT is sent, even if it has the same length', async () => {
  let stage: 'put' | 'asked' | 'over' = 'put';
  world.service.auto = (name) => {
    if (stage === 'put' && name.startsWith('putFileData')) {
      stage = 'asked';
      return { type: 'lose-reply' };
    }
    return stage === 'asked' && name.startsWith('resource') ? { type: 'refuse', status: 403 } : ANSWER;
  };
  await world.mount.writeFile('file', Buffer.from('AAAA'));
  await untilParked();
  stage = 'over';
  await world.mount.writeFile('file', Buffer.from('BBBB'));
  await world.converge();

  expect(shown()).toContain('BBBB');
  expect(
    world.service
      .childrenOf(MODEL_ROOT)
      .find(({ name }) => name === 'file')
      ?.versions[0]?.bytes.toString(),
  ).toBe('BBBB');
});

describe('a file that was created here, and saved elsewhere before any listing', () => {
  test('gets no conflicted copy: its own bytes are in the history', async () => {
    const { service, mount, side } = world;
    answerAll();
    await mount.writeFile('file', Buffer.from('ours'));
    await world.converge();
    service.addVersion(fileOf(), Buffer.from('theirs, saved over ours'));
    await side.freshness.refresh();
    await world.converge();

    expect([...service.tree()]).toEqual([['/file', 'theirs, saved over ours']]);
    expect((await mount.readFile('file')).toString()).toBe('theirs, saved over ours');
    expect(service.childrenOf(MODEL_ROOT)[0]?.versions.map(({ bytes }) => bytes.toString())).toEqual([
      'theirs, saved over ours',
      'ours',
    ]);
  });

  test('is sent again if the service has lost its bytes', async () => {
    const { service, mount, side } = world;
    answerAll();
    await mount.writeFile('file', Buffer.from('ours'));
    await world.converge();
    service.childrenOf(MODEL_ROOT)[0]?.versions.splice(0);
    service.addVersion(fileOf(), Buffer.from('ou'));
    await side.freshness.refresh();
    await world.converge();

    expect(shown()).toContain('ours');
  });
});

test.each([
  ['nobody else', ['theirs']],
  ['a third one', ['a third one', 'theirs']],
])(
  'a remote version that ours replaced is kept, also if %s saved over ours and the file was deleted here',
  async (third, left) => {
    const { service, mount, side } = world;
    await savedAndSent('base', 'ours');
    service.addVersion(fileOf(), Buffer.from('theirs'));
    await until('versions');
    if (third !== 'nobody else') service.addVersion(fileOf(), Buffer.from(third));
    await mount.unlink('file');
    answerAll();
    await world.converge();
    await side.freshness.refresh();
    await world.converge();

    expect(shown().toSorted()).toEqual(left);
    expect(await mount.readdir('')).toHaveLength(left.length);
  },
);

describe("somebody's version that comes while the file is saved again here is not buried by that", () => {
  test('a remote version that was made before our request for the history is kept as a copy', async () => {
    const { service, mount } = world;
    await savedAndSent('base', 'first');
    await mount.writeFile('file', Buffer.from('second'));
    await until('versions');
    service.addVersion(fileOf(), Buffer.from('theirs!'));
    answerAll();
    await world.converge();

    expect(shown().toSorted()).toEqual(['second', 'theirs!']);
  });

  test.each(['patched', 'written anew'])(
    'a remote version that began after ours and was complete before it is kept as a copy if the file is %s',
    async (how) => {
      const { service, mount } = world;
      service.asBegun = true;
      await savedAndSent('base', 'first');
      service.addVersion(fileOf(), Buffer.from('theirs!'));
      if (how === 'patched') await patch(5, Buffer.from('+second'));
      else await mount.writeFile('file', Buffer.from('second'));
      answerAll();
      await world.converge();

      expect(shown()).toContain('theirs!');
      expect(shown()).toContain(how === 'patched' ? 'first+second' : 'second');
    },
  );
});

test('a remote version below ours is kept as a copy if another one follows before the history is requested', async () => {
  const { service } = world;
  await savedAndSent('base', 'ours');
  service.addVersion(fileOf(), Buffer.from('theirs, the first'));
  await until('versions');
  service.addVersion(fileOf(), Buffer.from('theirs, over ours'));
  answerAll();
  await world.converge();

  expect(shown().toSorted()).toEqual(['theirs, over ours', 'theirs, the first']);
});

test('a remote version below ours stays visible although the request for the history was refused and the file was saved since', async () => {
  const { service, mount } = world;
  await savedAndSent('base', 'first');
  service.addVersion(fileOf(), Buffer.from('theirs!'));
  await mount.writeFile('file', Buffer.from('second'));
  await until('versions');
  for (const request of service.pending.splice(0)) request.settle({ type: 'refuse', status: 403 });
  service.auto = () => ANSWER;
  for (let round = 0; round < 40 && world.sync.status().parked.length === 0; round++) await world.pass(2_000);
  world.sync.retry(); // a person, where it was parked
  await world.converge();

  expect(shown().toSorted()).toEqual(['second', 'theirs!']);
});

describe("what is discarded here after somebody's version came over one of ours", () => {
  async function discarded(theirs: string): Promise<Inode> {
    const { service, mount, side } = world;
    await savedAndSent('base', 'first is longer');
    const ino = side.store.get('resource', fileOf()) as Inode;
    await mount.writeFile('file', Buffer.from('second'));
    await until('versions');
    service.addVersion(fileOf(), Buffer.from(theirs));
    for (const request of service.pending.splice(0)) request.settle(ANSWER);
    await world.pass(0);
    await world.sync.discard(ino, 'discard');
    return ino;
  }

  test('a discard leaves a file whose length is that of its bytes', async () => {
    const ino = await discarded('theirs!');
    const { local } = world.side.store.get('node', ino) ?? {};
    expect(local?.sizeBytes).toBe(world.side.contents.sizeOf(local?.content as ContentId));
  });

  test('a discarded change gives way to the remote version, even if that has the length of their common base', async () => {
    await discarded('thei');
    world.service.auto = () => ANSWER;
    for (let round = 0; round < 10; round++) {
      await world.pass(60_000);
      await world.side.freshness.refresh();
    }
    expect((await world.mount.readFile('file')).toString()).toBe('thei');
  });
});

test('a missing file of a body is reported to the user, and the connection counts as reachable', async () => {
  const { service, mount } = world;
  await mount.writeFile('file', Buffer.from('base'));
  await world.converge();
  service.putVersionData = async () => {
    throw new StorageError('gone', { cause: Object.assign(new Error('gone'), { code: 'ENOENT' }) });
  };
  await mount.writeFile('file', Buffer.from('first'));
  await untilParked();
});

test('a change over a draft that becomes another file’s version meanwhile is sent', async () => {
  const { service, mount } = world;
  const expected = Buffer.alloc(300_000, 'base');
  await mount.writeFile('file', expected);
  await world.converge();
  const file = fileOf();
  service.asBegun = true;
  // As a body is read: a file of it is opened when its turn comes, and that is late.
  const [ours, copies]: [(() => void)[], (() => void)[]] = [[], []];
  let moves = 0;
  const put = service.putVersionData.bind(service);
  const sendsNow: typeof put = async (url, offset, body, signal) => {
    const moved = body.find((piece) => piece.kind === 'file' && !existsSync(piece.path));
    if (moved?.kind === 'file') {
      moves++;
      const cause = Object.assign(new Error('not there'), { code: 'ENOENT' });
      throw new StorageError(`${moved.path}: cannot be read`, { cause });
    }
    return put(url, offset, body, signal);
  };
  service.putVersionData = async (url, ...rest) => {
    await new Promise<void>((resolve) => (url.startsWith(`${file}/`) ? ours : copies).push(resolve));
    return sendsNow(url, ...rest);
  };
  await patch(0, Buffer.alloc(100_000, 'first'));
  expected.fill('first', 0, 100_000);
  for (let round = 0; round < 20 && ours.length === 0; round++) await world.pass(2_000);
  service.addVersion(file, Buffer.from('theirs!'));
  await patch(150_000, Buffer.alloc(100_000, 'second'));
  expected.fill('second', 150_000, 250_000);
  ours.shift()?.();
  for (let round = 0; round < 40; round++) await world.pass(2_000);
  // The file, and the copy of what it lies over.
  expect([ours.length, copies.length]).toEqual([1, 1]);
  copies.shift()?.();
  await world.pass(0);
  service.putVersionData = sendsNow;
  ours.shift()?.();
  await world.converge();

  expect(moves).toBe(1);
  expect(world.sync.status().parked).toEqual([]);
  expect(service.resources.get(file)?.versions[0]?.bytes.equals(expected)).toBe(true);
});

test('a smaller save over one that the quota refused is sent', async () => {
  const { service, mount } = world;
  await mount.writeFile('file', Buffer.from('base'));
  await world.converge();
  service.auto = (name) => (name.startsWith('putVersionData') ? { type: 'refuse', status: 413 } : ANSWER);
  await mount.writeFile('file', Buffer.from('too large'));
  await untilParked();
  const put = service.putVersionData.bind(service);
  service.auto = () => ANSWER;
  service.putVersionData = (url, offset, body, signal) => {
    const bytes = body.reduce((sum, each) => sum + (each.kind === 'bytes' ? each.bytes.byteLength : each.length), 0);
    service.auto = (name) =>
      name.startsWith('putVersionData') && bytes > 5 ? { type: 'refuse', status: 413 } : ANSWER;
    return put(url, offset, body, signal);
  };
  await mount.writeFile('file', Buffer.from('small'));
  await world.converge();

  expect(shown()).toEqual(['small']);
  expect(world.sync.status().parked).toEqual([]);
});
