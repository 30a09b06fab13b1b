import { mkdtempSync, readdirSync, renameSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { BlobWriter } from '../../src/server/blob-writer.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp, texts } from './raw-client.ts';

/**
 * A disk that cannot write what it took. Linux tells of it once per open file (fsync(2)), also the sync that runs while bytes still
 * arrive: what is told there is not told again at the end.
 */

const MIB = 1024 * 1024;
const PIECE = Buffer.alloc(8 * MIB, 'piece');
/** After so much the disk is brought along. */
const SYNCED_AT_ONCE = [PIECE, PIECE, PIECE, PIECE];

let directory: string;
let path: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-lost-writes-'));
  path = join(directory, 'blob');
});

afterEach(() => {
  rmSync(directory, { recursive: true });
});

type Answers = Partial<Record<'writev' | 'sync' | 'datasync' | 'truncate', (() => Promise<unknown>)[]>>;

const lost = () => Promise.reject(Object.assign(new Error('i/o error'), { code: 'EIO' }));
const done = () => Promise.resolve();

/** The handle, some of whose first calls are answered by the test. */
function disturbed(file: FileHandle, answers: Answers): FileHandle {
  return new Proxy(file, {
    get: (target, name: keyof FileHandle) => {
      const answer = answers[name as keyof Answers]?.shift();
      const member = target[name] as unknown;
      if (answer !== undefined) return answer;
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
}

const writer = (answers: Answers, offset = 0, syncedBytes = 0) =>
  new BlobWriter({
    offset,
    syncedBytes,
    openFile: async () => ({ file: disturbed(await open(path, offset === 0 ? 'w+' : 'r+'), answers), path }),
    closed: () => {},
  });

test('what a sync behind the upload was told fails the upload, which goes on behind the last bytes that are there', async () => {
  const blob = writer({ datasync: [done, lost] });
  await blob.write(SYNCED_AT_ONCE);
  await blob.write(SYNCED_AT_ONCE);

  await expect(blob.finish()).rejects.toThrow('i/o error');
  await blob.close();

  expect(statSync(path).size).toBe(32 * MIB);
});

test('bytes that were lost are followed by no others', async () => {
  const blob = writer({ datasync: [lost] });
  await blob.write(SYNCED_AT_ONCE);
  await blob.write([PIECE]).catch(() => {});

  await expect(blob.write([PIECE])).rejects.toThrow('i/o error');
  await blob.close();

  expect(statSync(path).size).toBe(0);
});

test('what is lost while more is written is not synced away', async () => {
  let lose = (): void => {};
  const losing = new Promise((_resolve, reject) => {
    lose = () => reject(new Error('i/o error'));
  });
  const answers: Answers = { datasync: [() => losing, done], writev: [] };
  const blob = writer(answers);
  await blob.write(SYNCED_AT_ONCE);
  answers.writev?.push(async () => {
    lose();
    await new Promise(setImmediate);
    return { bytesWritten: 32 * MIB };
  });
  await blob.write(SYNCED_AT_ONCE);

  await expect(blob.finish()).rejects.toThrow('i/o error');
  await blob.close();

  expect(statSync(path).size).toBe(0);
});

test.each<readonly [what: string, answers: Answers]>([
  ['the sync at the end', { sync: [lost] }],
  ['a write', { writev: [lost] }],
])('when %s fails, what was synced earlier stays, and no more', async (_what, answers) => {
  const first = writer({});
  await first.write([PIECE]);
  await first.suspend();
  const more = writer(answers, PIECE.byteLength, MIB);

  const written = more.write([PIECE]).then(() => more.suspend());

  await expect(written).rejects.toThrow('i/o error');
  await more.close();
  expect(statSync(path).size).toBe(MIB);
});

test('a file that cannot be cut off is removed', async () => {
  const blob = writer({ sync: [lost], truncate: [lost] });
  await blob.write([PIECE]);

  await expect(blob.suspend()).rejects.toThrow('i/o error');
  await blob.close();

  expect(() => statSync(path)).toThrow('ENOENT');
});

/** Lets the next call of a method of all files fail. */
function failing<T>(method: 'datasync' | 'writev', code: string, run: () => Promise<T>): Promise<T> {
  const disturbed = () => Promise.reject(Object.assign(new Error('disturbed by the test'), { code }));
  return withMethod(method, disturbed, run);
}

/** The next call of a method of any file is one of `stand`. */
async function withMethod<T>(method: string, stand: (this: FileHandle) => unknown, run: () => Promise<T>): Promise<T> {
  const file = await open(path, 'w');
  const prototype = Object.getPrototypeOf(file) as Record<string, unknown>;
  await file.close();
  const original = prototype[method];
  prototype[method] = function (this: FileHandle) {
    prototype[method] = original;
    return stand.call(this);
  };
  try {
    return await run();
  } finally {
    prototype[method] = original;
  }
}

test.each<readonly [what: string, method: 'datasync' | 'writev', code: string, status: number]>([
  ['lost bytes', 'datasync', 'EIO', 500],
  ['had no room for them', 'writev', 'ENOSPC', 507],
])(
  'an upload of which the disk %s is refused, and goes on behind what was synced',
  async (_what, method, code, status) => {
    const server = await ReferenceServer.open({ dataDirectory: join(directory, 'data') });
    const { client, folder } = await signUp(server, 'a@example.com');
    const file = await client.createFile(folder('2'), 'large');
    const version = (await client.send('POST', `${file}/version`)).headers.location as string;
    const body = Buffer.concat([...SYNCED_AT_ONCE, PIECE], 33 * MIB);
    server.faults = [{ on: 'PUT', then: { acceptBytes: 20_000 } }];
    await client.send('PUT', `${version}/data`, { body });
    server.faults = [];
    const rest = { body: body.subarray(20_000), headers: { Range: 'bytes=20000-' } };

    const refused = await failing(method, code, () => client.send('PUT', `${version}/data`, rest));
    const stored = texts((await client.get(version)).text, 'storedSize');
    const again = await client.send('PUT', `${version}/data`, rest);

    expect([refused.status, stored, again.status]).toEqual([status, ['20000'], 200]);
    expect((await client.get(`${file}/data`)).bytes.equals(body)).toBe(true);
    await server.close();
  },
);

test('a version whose file cannot be closed is not taken for ever', async () => {
  const server = await ReferenceServer.open({ dataDirectory: join(directory, 'data') });
  const { client, folder } = await signUp(server, 'a@example.com');
  const file = await client.createFile(folder('2'), 'large');
  const version = (await client.send('POST', `${file}/version`)).headers.location as string;
  const body = Buffer.alloc(40_000, 'x');
  server.faults = [{ on: 'PUT', then: { acceptBytes: 20_000 } }];
  await client.send('PUT', `${version}/data`, { body });
  server.faults = [];
  const rest = { body: body.subarray(20_000), headers: { Range: 'bytes=20000-' } };
  // As on a file server that is gone: the sync is refused, and then the close.
  const stale = () => Promise.reject(Object.assign(new Error('stale file handle'), { code: 'ESTALE' }));
  const failingSync = function (this: FileHandle) {
    const close = this.close.bind(this);
    this.close = () => close().then(stale);
    return stale();
  };

  const refused = await withMethod('sync', failingSync, () => client.send('PUT', `${version}/data`, rest));
  const stored = texts((await client.get(version)).text, 'storedSize');
  const again = await client.send('PUT', `${version}/data`, rest);

  expect([refused.status, stored, again.status, server.uploadsUnderWay]).toEqual([500, ['20000'], 200, 0]);
  await server.close();
});

test('an upload whose bytes the disk does not find for a moment is not begun anew', async () => {
  const data = join(directory, 'data');
  const server = await ReferenceServer.open({ dataDirectory: data });
  const { client, folder } = await signUp(server, 'a@example.com');
  const file = await client.createFile(folder('2'), 'large');
  const version = (await client.send('POST', `${file}/version`)).headers.location as string;
  const body = Buffer.alloc(40_000, 'x');
  server.faults = [{ on: 'PUT', then: { acceptBytes: 20_000 } }];
  await client.send('PUT', `${version}/data`, { body });
  server.faults = [];
  const [name = ''] = readdirSync(join(data, 'blobs'));
  const blobFolder = join(data, 'blobs', name);

  renameSync(blobFolder, `${blobFolder}.aside`);
  symlinkSync(name, blobFolder); // ELOOP
  const asked = await client.get(version);
  rmSync(blobFolder);
  renameSync(`${blobFolder}.aside`, blobFolder);

  expect(asked.status).toBe(500);
  const rest = { body: body.subarray(20_000), headers: { Range: 'bytes=20000-' } };
  expect((await client.send('PUT', `${version}/data`, rest)).status).toBe(200);
  await server.close();
});
