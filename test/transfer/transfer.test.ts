import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MessageChannel } from 'node:worker_threads';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ApiError, StorageError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { Port } from '../../src/base/port.ts';
import type { BodyPiece, WrittenExtent } from '../../src/base/resources.ts';
import { BLOCK_BYTES, type ResourceUrl, type VersionUrl } from '../../src/base/vocabulary.ts';
import type { VersionSource } from '../../src/content/version-source.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { StrangeNetworkError } from '../../src/remote/strange-network.ts';
import type { RemoteChanges, UploadService } from '../../src/sync/remote-changes.ts';
import { Connectivity } from '../../src/transfer/connectivity.ts';
import { createTransfer, type Transfer } from '../../src/transfer/transfer.ts';
import { bodyLength, uploadBody } from '../../src/transfer/upload-body.ts';
import type { RemoteListing } from '../../src/tree/remote-listing.ts';
import { clientOf, HastyClock } from '../remote/client.ts';
import {
  answer,
  hang,
  loseAnswer,
  raw,
  reply,
  ScriptedServer,
  type Step,
  until,
  xml,
} from '../remote/scripted-server.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { openDescriptors } from './open-descriptors.ts';

const BYTES = Buffer.from(Uint8Array.from({ length: 3_000_000 }, (_, i) => (i * 7 + (i >> 8)) & 0xff));
/** Makes landing begin to write, with less behind it than would make it do so again. */
const FIRST_WRITE_BYTES = 270_000;
const FOLDER = '<folder><displayName>a</displayName><contents>c</contents></folder>';

const USER =
  '<user><username>a</username><nickname>a</nickname><quota><limit>9</limit><usage>1</usage></quota>' +
  ['syncfolders', 'magicBriefcase', 'deleted']
    .map((name) => `<${name}>http://127.0.0.1/${name}/contents</${name}>`)
    .join('') +
  '</user>';

let server: ScriptedServer;
let service: HttpService;
let transfer: Transfer;
let clock: HastyClock;
let folder: string;
const signal = new AbortController().signal;
// Many transfers at once share it here; in life each call across the port has its own.
setMaxListeners(0, signal);

beforeEach(async () => {
  server = await ScriptedServer.start();
  clock = new HastyClock();
  service = clientOf(server.baseUrl, { clock });
  transfer = createTransfer({ service, clock, log: silentLogger });
  folder = await mkdtemp(join(tmpdir(), 'cfs-transfer-'));
});

afterEach(async () => {
  await service.close();
  await server.close();
  await rm(folder, { recursive: true });
});

const versionUrl = () => server.url('/file/:sc:1:2/version/3') as VersionUrl;
const fileUrl = () => server.url('/file/:sc:1:2') as ResourceUrl;

/** Answers any range of `BYTES`, as a server does. */
const serveBytes = {
  act: (socket: Parameters<typeof hang.act>[0], request: Parameters<typeof hang.act>[1]) => {
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
    if (range === null) return reply(200, {}, BYTES).act(socket, request);
    const [start, last] = [Number(range[1]), Number(range[2])];
    const headers = { 'Content-Range': `bytes ${start}-${last}/${BYTES.byteLength}` };
    return reply(206, headers, BYTES.subarray(start, last + 1)).act(socket, request);
  },
};

const unheard = (): void => {};

test('the services have the shapes that the other side of the port needs', () => {
  const listings: RemoteListing = transfer.listings;
  const versions: VersionSource = transfer.versions;
  const changes: RemoteChanges = transfer.changes;
  const uploads: UploadService = transfer.uploads;

  expect([listings, versions, changes, uploads]).toHaveLength(4);
});

test('the services work across a port, cancellation and errors included', async () => {
  const { port1, port2 } = new MessageChannel();
  new Port(port1).offer('listings', transfer.listings);
  const listings = new Port(port2).remote<RemoteListing>('listings');
  server.steps = [xml(FOLDER), reply(403), hang];
  const url = server.url('/folder/:sc:1:1') as ResourceUrl;

  expect(await listings.resource(url, 'folder', signal)).toMatchObject({ name: 'a' });
  await expect(listings.resource(url, 'folder', signal)).rejects.toMatchObject({ name: 'ApiError', status: 403 });
  const controller = new AbortController();
  const hanging = listings.resource(url, 'folder', controller.signal);
  hanging.catch(() => {});
  await until(() => server.requests.length === 3, 'the request arrives');
  controller.abort(new DOMException('enough', 'AbortError'));
  await expect(hanging).rejects.toMatchObject({ name: 'AbortError' });
  await until(() => !server.isOpen(server.requests[2]?.connection ?? 0), 'its connection ends');
  port1.close();
});

describe('a fetch', () => {
  test('a fetch into a file writes the bytes at their own offset before it resolves', async () => {
    server.otherwise = serveBytes;
    const path = join(folder, 'content');
    await writeFile(path, 'before');
    const extent = { start: 1_000_000, end: 2_500_001 };
    const told: WrittenExtent[] = [];
    const { port1, port2 } = new MessageChannel();
    new Port(port1).offer('versions', transfer.versions);

    const fetched = await new Port(port2).remote<VersionSource>('versions').readVersion(
      versionUrl(),
      extent,
      BYTES.byteLength,
      { kind: 'file', path },
      (there) => {
        const inFile = readFileSync(path).subarray(there.start, there.end);
        expect(Buffer.compare(inFile, BYTES.subarray(there.start, there.end))).toBe(0);
        told.push(there);
      },
      signal,
    );

    expect(fetched).toEqual({ extent, bytes: null });
    // Told in steps, each from the start on, when the bytes are in the file; the last step, which may be the only one, is all of it.
    expect(told.every(({ start }) => start === extent.start)).toBe(true);
    expect(told.at(-1)).toMatchObject(extent);
    // And the checksums of the blocks that came whole, or to the end, once each.
    const checksums = told.flatMap(
      ({ checksums }) => checksums?.values.map((checksum, at) => [checksums.first + at, checksum]) ?? [],
    );
    const wanted: [number, number][] = [];
    for (let block = 8; block * BLOCK_BYTES < extent.end; block++)
      wanted.push([block, crc32(BYTES.subarray(block * BLOCK_BYTES, Math.min((block + 1) * BLOCK_BYTES, extent.end)))]);
    expect(checksums).toEqual(wanted);
    port1.close();
    const written = await readFile(path);
    expect(written.byteLength).toBe(extent.end);
    expect(written.subarray(0, 6).toString()).toBe('before');
    expect(written.subarray(extent.start).equals(BYTES.subarray(extent.start, extent.end))).toBe(true);
    expect((await stat(path)).blocks * 512).toBeLessThan(1_700_000); // what was not fetched stays a hole
  });

  test('a fetch into memory returns the bytes', async () => {
    server.otherwise = serveBytes;
    const extent = { start: 17, end: 4113 };

    const fetched = await transfer.versions.readVersion(
      versionUrl(),
      extent,
      BYTES.byteLength,
      { kind: 'memory' },
      unheard,
      signal,
    );

    expect(fetched.extent).toEqual(extent);
    expect(Buffer.from(fetched.bytes as Uint8Array).equals(BYTES.subarray(17, 4113))).toBe(true);
  });

  test('a fetch from a service that ignores Range keeps the whole file', async () => {
    server.otherwise = reply(200, {}, BYTES);
    const path = join(folder, 'content');
    const target = { kind: 'file', path } as const;

    const fetched = await transfer.versions.readVersion(
      versionUrl(),
      { start: 9, end: 12 },
      BYTES.byteLength,
      target,
      unheard,
      signal,
    );

    expect(fetched.extent).toEqual({ start: 0, end: BYTES.byteLength });
    expect((await readFile(path)).equals(BYTES)).toBe(true);
  });

  test('a fetch into memory that gets far more than requested keeps the requested bytes, and reports it', async () => {
    const size = 64 * 1024 * 1024;
    const head = `HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`;
    server.steps = [raw(Buffer.concat([Buffer.from(head), Buffer.alloc(1024 * 1024, 'x')]), 'stay')];

    const fetched = await transfer.versions.readVersion(
      versionUrl(),
      { start: 9, end: 12 },
      size,
      { kind: 'memory' },
      unheard,
      signal,
    );

    const bytes = Uint8Array.from(Buffer.from('xxx'));
    expect(fetched).toEqual({ extent: { start: 9, end: 12 }, bytes, isLonger: true });
  });

  test('a fetch into a file that cannot be opened is a StorageError, and sends no request', async () => {
    const target = { kind: 'file', path: join(folder, 'no', 'such', 'folder') } as const;

    await expect(
      transfer.versions.readVersion(versionUrl(), { start: 0, end: 9 }, 9, target, unheard, signal),
    ).rejects.toBeInstanceOf(StorageError);
    expect(server.requests).toEqual([]);
  });

  test.each<[string, number, number | null]>([
    ['while more comes', 2_000_000, null],
    ['where no more comes than the first write', FIRST_WRITE_BYTES, null],
    ['where no more comes than the first write, and bytes are slowed down', FIRST_WRITE_BYTES, 100_000_000],
  ])(
    'a fetch onto a full disk %s reports the full disk, and releases the connection',
    async (_where, bytes, downBytesPerSecond) => {
      const { versions } = createTransfer({
        service,
        clock,
        log: silentLogger,
        limits: { upBytesPerSecond: null, downBytesPerSecond },
      });
      const head = { 'Content-Length': String(BYTES.byteLength) };
      server.otherwise = raw(answer(200, head, BYTES.subarray(0, bytes)), 'stay');
      const target = { kind: 'file', path: '/dev/full' } as const;
      const extent = { start: 0, end: BYTES.byteLength };

      await expect(
        versions.readVersion(versionUrl(), extent, extent.end, target, unheard, signal),
      ).rejects.toMatchObject({
        name: 'StorageError',
        full: true,
      });
      await until(() => server.requests.every(({ connection }) => !server.isOpen(connection)), 'its connections end');
    },
  );
});

describe('a body', () => {
  test('the body of an upload has the bytes of its pieces, in order', async () => {
    const [path, base] = [join(folder, 'draft'), join(folder, 'base')];
    const reversed = Buffer.from(BYTES).reverse();
    await writeFile(path, BYTES);
    await writeFile(base, reversed);
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 50 }).map((bytes): BodyPiece => ({ kind: 'bytes', bytes })),
      fc.nat({ max: 400_000 }).map((length): BodyPiece => ({ kind: 'zeros', length })),
      fc
        .tuple(fc.nat({ max: 2_000_000 }), fc.nat({ max: 600_000 }))
        .map(([offset, length]): BodyPiece => ({ kind: 'file', path, offset, length })),
      // The pages of a database.
      fc
        .tuple(fc.constantFrom(path, base), fc.nat({ max: 2_000_000 }), fc.nat({ max: 9000 }))
        .map(([path, offset, length]): BodyPiece => ({ kind: 'file', path, offset, length })),
    );

    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 12 }), async (pieces) => {
        const expected = Buffer.concat(
          pieces.map((part) => {
            if (part.kind === 'bytes') return part.bytes;
            return part.kind === 'zeros'
              ? Buffer.alloc(part.length)
              : (part.path === path ? BYTES : reversed).subarray(part.offset, part.offset + part.length);
          }),
        );
        let counted = 0;
        const body = uploadBody(pieces, (bytes) => {
          counted += bytes;
        });
        // Twice: a body must be the same when it is sent again.
        for (let time = 0; time < 2; time++) {
          const chunks: Uint8Array[] = [];
          for await (const chunk of body.chunks()) chunks.push(Buffer.from(chunk));
          expect(Buffer.concat(chunks).equals(expected)).toBe(true);
          // All are full but the last, however short the pieces are.
          const last = chunks.pop()?.byteLength ?? 1;
          expect(last).toBeGreaterThan(0);
          expect(last).toBeLessThanOrEqual(512 * 1024);
          expect(chunks.filter((chunk) => chunk.byteLength !== 512 * 1024)).toEqual([]);
        }
        expect(body.length).toBe(expected.byteLength);
        expect(bodyLength(pieces)).toBe(expected.byteLength);
        expect(counted).toBe(expected.byteLength);
      }),
      { numRuns: 40 },
    );
  });

  test('a body keeps the bytes of a chunk until two more are requested, and uses no more buffers than that', async () => {
    const path = join(folder, 'draft');
    // Each piece unlike the others.
    await writeFile(path, Buffer.concat(Array.from({ length: 6 }, (_, fill) => Buffer.alloc(512 * 1024, fill))));
    const body = uploadBody([{ kind: 'file', path, offset: 0, length: 6 * 512 * 1024 }], () => {});
    const lent: { chunk: Uint8Array; copy: Buffer }[] = [];
    const memories = new Set<ArrayBufferLike>();

    for await (const chunk of body.chunks()) {
      memories.add(chunk.buffer);
      lent.push({ chunk, copy: Buffer.from(chunk) });
      // The piece that is read ahead is there by then: the same threads read both.
      await readFile(path);
      for (const { chunk: held, copy } of lent.slice(-2)) expect(copy.equals(held)).toBe(true);
    }

    expect(lent).toHaveLength(6);
    expect(memories.size).toBe(3);
  });

  test.each([null, 100_000_000])(
    'a body from a file arrives unchanged at %s bytes per second',
    async (upBytesPerSecond) => {
      const path = join(folder, 'draft');
      const bytes = randomBytes(5_000_000);
      await writeFile(path, bytes);
      server.otherwise = reply(204);
      const limits = { upBytesPerSecond, downBytesPerSecond: null };
      const { uploads } = createTransfer({ service, clock, log: silentLogger, limits });

      await uploads.putFileData(
        fileUrl(),
        [{ kind: 'file', path, offset: 0, length: bytes.byteLength }],
        't/t',
        signal,
      );

      expect(server.requests.at(-1)?.body.equals(bytes)).toBe(true);
    },
  );

  test('a body of a file that is too short never arrives whole', async () => {
    const path = join(folder, 'draft');
    await writeFile(path, BYTES);
    await truncate(path, 2_000_000);
    server.otherwise = reply(204);
    const pieces: BodyPiece[] = [{ kind: 'file', path, offset: 0, length: BYTES.byteLength }];

    await expect(transfer.uploads.putFileData(fileUrl(), pieces, 't/t', signal)).rejects.toBeInstanceOf(StorageError);
    expect(server.requests).toEqual([]); // the request never became complete, so the server never saw one
  });

  test('a body reports the missing bytes of a piece, and closes its files however it ends', async () => {
    const path = join(folder, 'draft');
    await writeFile(path, BYTES.subarray(0, 700_000));
    const body = uploadBody(
      [
        { kind: 'file', path, offset: 10, length: 100 },
        { kind: 'file', path, offset: 0, length: 1_000_000 },
      ],
      () => {},
    );

    const chunks = body.chunks()[Symbol.asyncIterator]();
    expect((await chunks.next()).value?.byteLength).toBe(512 * 1024);
    expect(openDescriptors(path)).toBe(1);
    await expect(chunks.next()).rejects.toThrow(`${path}: is 300000 bytes shorter than announced`);
    expect(openDescriptors(path)).toBe(0);

    // Nobody wants the rest.
    const others = body.chunks()[Symbol.asyncIterator]();
    await others.next();
    await others.return?.();
    expect(openDescriptors(path)).toBe(0);
  });

  test('a body of a missing file is a StorageError', async () => {
    server.otherwise = reply(204);
    const pieces: BodyPiece[] = [{ kind: 'file', path: join(folder, 'none'), offset: 0, length: 1 }];

    await expect(transfer.uploads.putFileData(fileUrl(), pieces, 't/t', signal)).rejects.toBeInstanceOf(StorageError);
  });
});

describe('an upload', () => {
  const done = (bytes: number) =>
    xml(`<fileVersion><size>${bytes}</size><presentOnServer>true</presentOnServer></fileVersion>`);

  test('an upload of the rest names its offset and length', async () => {
    server.steps = [done(10)];
    const pieces: BodyPiece[] = [
      { kind: 'bytes', bytes: Buffer.from('abc') },
      { kind: 'zeros', length: 3 },
    ];

    const progress = await transfer.uploads.putVersionData(versionUrl(), 4, pieces, signal);

    expect(progress).toEqual({ complete: true, receivedBytes: 10 });
    expect(server.requests[0]).toMatchObject({
      method: 'PUT',
      path: '/file/:sc:1:2/version/3/data',
      headers: { range: 'bytes=4-', 'content-length': '6' },
      body: Buffer.from('abc\0\0\0'),
    });
  });

  test('an empty upload is sent with its length, and completes the version', async () => {
    server.steps = [done(7)];

    await transfer.uploads.putVersionData(versionUrl(), 7, [], signal);

    expect(server.requests[0]?.headers).toMatchObject({ range: 'bytes=7-', 'content-length': '0' });
  });

  test('an upload that the service accepted only in part is not complete', async () => {
    server.steps = [
      xml('<fileVersion><storedSize>2</storedSize><presentOnServer>false</presentOnServer></fileVersion>'),
    ];

    const progress = await transfer.uploads.putVersionData(versionUrl(), 0, [{ kind: 'zeros', length: 9 }], signal);

    expect(progress).toEqual({ complete: false, receivedBytes: 2 });
  });

  test('the progress of an upload is requested if the response had no document', async () => {
    server.steps = [reply(204), done(9)];

    const progress = await transfer.uploads.putVersionData(versionUrl(), 0, [{ kind: 'zeros', length: 9 }], signal);

    expect(progress).toEqual({ complete: true, receivedBytes: 9 });
    expect(server.requests[1]).toMatchObject({ method: 'GET', path: '/file/:sc:1:2/version/3' });
  });

  test('a version that the service does not know has no progress', async () => {
    server.steps = [reply(404)];

    expect(await transfer.uploads.versionProgress(versionUrl(), signal)).toBeNull();
  });
});

describe('transfers at once', () => {
  test('eight transfers run in parallel, downloads before uploads, and one place is reserved for uploads', async () => {
    server.otherwise = { at: 'head', act: () => {} };
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const started: Promise<unknown>[] = [];
    const upload = () =>
      transfer.uploads.putFileData(fileUrl(), [{ kind: 'zeros', length: 100_000 }], 't/t', controller.signal);
    const download = () =>
      transfer.versions.readVersion(
        versionUrl(),
        { start: 0, end: 1 },
        5,
        { kind: 'memory' },
        unheard,
        controller.signal,
      );
    const seen = (method: string) => server.requests.filter((request) => request.method === method).length;

    for (let i = 0; i < 10; i++) started.push(upload());
    await until(() => seen('PUT') === 6, 'six uploads');
    for (let i = 0; i < 5; i++) started.push(download());
    await until(() => seen('GET') === 2, 'two downloads');

    expect(transfer.stats()).toMatchObject({ waiting: 7 });
    expect(
      transfer
        .stats()
        .running.map(({ kind }) => kind)
        .sort(),
    ).toEqual([...Array.from({ length: 2 }, () => 'download'), ...Array.from({ length: 6 }, () => 'upload')]);
    controller.abort(new DOMException('enough', 'AbortError'));
    const ends = await Promise.allSettled(started);
    expect(ends.every((end) => end.status === 'rejected')).toBe(true);
    expect(transfer.stats()).toMatchObject({ waiting: 0, running: [] });
  });

  test('ended transfers pass on their places', async () => {
    server.otherwise = serveBytes;
    const read = (i: number) =>
      transfer.versions.readVersion(
        versionUrl(),
        { start: i, end: i + 5 },
        BYTES.byteLength,
        { kind: 'memory' },
        unheard,
        signal,
      );

    const fetched = await Promise.all(Array.from({ length: 40 }, (_, i) => read(i)));

    expect(fetched.map(({ extent }) => extent.start)).toEqual(Array.from({ length: 40 }, (_, i) => i));
    expect(transfer.stats()).toMatchObject({ waiting: 0, running: [], bytesDownloaded: 200 });
  });
});

describe('whether the service can be reached', () => {
  const ask = () => transfer.listings.resource(server.url('/folder/:sc:1:1') as ResourceUrl, 'folder', signal);

  test('the reachability is unknown before the first request has ended, and listeners learn each change', async () => {
    const told: (boolean | null)[] = [];
    transfer.connectivity.onChange(({ online }) => told.push(online));
    expect(transfer.stats()).toMatchObject({ online: null, lastAnswerMs: null, offlineSinceMs: null });

    server.steps = [reply(403)];
    await ask().catch(() => {});
    expect(transfer.stats().lastAnswerMs).not.toBeNull();
    server.otherwise = loseAnswer();
    await ask().catch(() => {});
    await ask().catch(() => {});
    expect(transfer.stats()).toMatchObject({ online: false, offlineSinceMs: expect.any(Number) });
    server.otherwise = xml(FOLDER);
    await ask();

    expect(transfer.stats()).toMatchObject({ online: true, offlineSinceMs: null });
    expect(told).toEqual([true, false, true]);
  });

  /** [S-network-2] */
  describe('while somebody refuses everything', () => {
    const refusal = () => Promise.reject(new ApiError(403, 'GET /folder', 'forbidden'));

    function watched(probe: () => Promise<unknown>) {
      const manual = new ManualClock();
      return { manual, connectivity: new Connectivity({ clock: manual, log: silentLogger, probe }) };
    }

    test('while every request is refused, refusals count as no response until a request succeeds', async () => {
      const { connectivity } = watched(refusal);
      await expect(connectivity.watched(refusal)).rejects.toMatchObject({ name: 'ApiError' });
      expect(connectivity.state.online).toBe(true);

      await expect(connectivity.confirmed('can wait', signal)).rejects.toMatchObject({ name: 'TransportError' });
      expect(connectivity.state).toMatchObject({
        online: false,
        failure: { message: expect.stringContaining('every request') },
      });
      await expect(connectivity.watched(refusal)).rejects.toMatchObject({ name: 'TransportError' });
      await expect(connectivity.watched(async () => null)).rejects.toMatchObject({ name: 'TransportError' });
      expect(connectivity.state).toMatchObject({ online: false, failure: expect.any(StrangeNetworkError) });

      await connectivity.watched(async () => 'a listing');
      expect(connectivity.state.online).toBe(true);
      await expect(connectivity.watched(refusal)).rejects.toMatchObject({ name: 'ApiError' });
    });

    test('after a successful probe, a refusal of the service counts without another request', async () => {
      let probe = refusal as () => Promise<unknown>;
      const { manual, connectivity } = watched(() => probe());
      await expect(connectivity.confirmed('can wait', signal)).rejects.toThrow('every request');

      probe = async () => 'the user';
      await expect(connectivity.watched(refusal)).rejects.toMatchObject({ name: 'TransportError' });
      manual.advance(10_000);
      await new Promise((resolve) => setImmediate(resolve));

      expect(connectivity.state.online).toBe(true);
      await expect(connectivity.watched(refusal)).rejects.toMatchObject({ name: 'ApiError' });
    });

    test('while everything is refused, one probe in ten seconds decides for all callers, each of which waits for a newer one', async () => {
      const probedMs: number[] = [];
      const { manual, connectivity } = watched(async () => void probedMs.push(manual.elapsedMs()));
      const confirmedMs: number[] = [];
      for (let second = 0; second < 59; second++) {
        const askedMs = manual.elapsedMs();
        void connectivity.confirmed('can wait', signal).then(() => {
          expect(probedMs.at(-1)).toBeGreaterThanOrEqual(askedMs);
          confirmedMs.push(askedMs);
        });
        manual.advance(1_000);
        await new Promise((resolve) => setImmediate(resolve));
      }

      expect(probedMs).toEqual([0, 10_000, 20_000, 30_000, 40_000, 50_000]);
      expect(confirmedMs.length).toBe(50);
    });

    test('a successful request that was sent later replaces the probe, and one that was sent before does not', async () => {
      let probes = 0;
      const { manual, connectivity } = watched(async () => void probes++);
      await connectivity.confirmed('can wait', signal);
      let answer = () => {};
      const before = connectivity.watched(
        () =>
          new Promise<string>((resolve) => {
            answer = () => resolve('done');
          }),
        'data',
      );
      manual.advance(1);
      let isConfirmed = false;
      const confirmed = connectivity.confirmed('can wait', signal).then(() => {
        isConfirmed = true;
      });
      answer();
      await before;
      await new Promise((resolve) => setImmediate(resolve));
      expect(isConfirmed).toBe(false);

      manual.advance(1);
      await connectivity.watched(async () => 'a listing');
      await confirmed;
      manual.advance(60_000);
      expect(probes).toBe(1);
    });

    test('a 404 from a network that refuses everything removes no local file', async () => {
      server.otherwise = reply(404);
      const folderUrl = server.url('/folder/:sc:1:1') as ResourceUrl;
      for (const ask of [
        () => transfer.changes.resource(folderUrl, 'folder', signal),
        () => transfer.changes.deleteForever(folderUrl, 'folder', signal),
        () => transfer.changes.moveToTrash(folderUrl, 'folder', 'a', signal),
      ])
        await expect(ask()).rejects.toThrow();

      server.otherwise = {
        act: (socket, request) => {
          const known: Record<string, Step> = { '/user/1': xml(USER), '/folder/:sc:1:9': xml(FOLDER) };
          (known[request.path] ?? reply(404)).act(socket, request);
        },
      };
      await transfer.listings.resource(server.url('/folder/:sc:1:9') as ResourceUrl, 'folder', signal);
      expect(await transfer.changes.resource(folderUrl, 'folder', signal)).toBeNull();
      await transfer.changes.deleteForever(folderUrl, 'folder', signal);
    });
  });

  test('the reachability is in doubt when no request gets a response for long, even without a failure', async () => {
    const manual = new ManualClock();
    const connectivity = new Connectivity({ clock: manual, log: silentLogger, probe: async () => {} });
    let answer = () => {};
    const hanging = connectivity.watched(
      () =>
        new Promise<void>((resolve) => {
          answer = resolve;
        }),
    );
    const upload = connectivity.watched(() => new Promise<void>(() => {}), 'data');
    upload.catch(() => {});
    manual.advance(6_000);
    connectivity.heard(); // bytes of a download arrive: it is a slow line, not a dead one
    manual.advance(6_000);
    expect(connectivity.state.online).toBeNull();
    manual.advance(4_000);
    expect(connectivity.state).toMatchObject({ online: false, offlineSinceMs: manual.nowMs() - 2_000 });

    answer();
    await hanging;

    expect(connectivity.state.online).toBe(true);
    manual.advance(60_000);
    expect(connectivity.state.online).toBe(true);
  });

  test('an abort or a full disk does not make the service unreachable', async () => {
    server.otherwise = serveBytes;
    await transfer.versions
      .readVersion(
        versionUrl(),
        { start: 0, end: 5 },
        BYTES.byteLength,
        { kind: 'file', path: '/dev/full' },
        unheard,
        signal,
      )
      .catch(() => {});
    const gone = AbortSignal.abort(new DOMException('enough', 'AbortError'));
    await transfer.listings.listPage(fileUrl(), 0, gone).catch(() => {});

    expect(transfer.stats().online).toBeNull();
  });
});

describe('limits', () => {
  test('a read-ahead continues without delay when a reader waits for its bytes', async () => {
    const limitedClock = new ManualClock();
    const limits = { upBytesPerSecond: null, downBytesPerSecond: 2_000_000 };
    const slow = createTransfer({ service, clock: limitedClock, log: silentLogger, limits });
    server.otherwise = serveBytes;
    const read = (end: number, isAhead: boolean) => {
      const target = { kind: 'memory', isAhead } as const;
      return slow.versions.readVersion(versionUrl(), { start: 0, end }, BYTES.byteLength, target, unheard, signal);
    };
    const doneOf = (bytesTotal: number) =>
      slow.stats().running.find((transfer) => transfer.bytesTotal === bytesTotal)?.bytesDone ?? null;
    const [aheadBytes, waitedBytes] = [BYTES.byteLength - 1, 400_000];

    const ahead = read(aheadBytes, true);
    await expect.poll(() => doneOf(aheadBytes)).toBeGreaterThan(0);
    const waited = read(waitedBytes, false);
    await expect.poll(() => server.requests.length).toBe(2);
    // What is asked for and answered after it: its bytes have come, and wait for their turn.
    for (let times = 0; times < 5; times++) {
      const tiny = { start: 0, end: 1 + times };
      await transfer.versions.readVersion(versionUrl(), tiny, BYTES.byteLength, { kind: 'memory' }, unheard, signal);
    }
    const step = async (): Promise<void> => {
      limitedClock.advance(1);
      await new Promise((resolve) => setImmediate(resolve));
    };
    while ((doneOf(waitedBytes) ?? 0) === 0) await step();
    const aheadBefore = doneOf(aheadBytes) as number;
    while (doneOf(waitedBytes) !== null) await step();
    const aheadAfter = doneOf(aheadBytes) as number;
    await waited;

    // Fair shares would give each the same.
    expect(aheadAfter - aheadBefore).toBeLessThan(waitedBytes / 4);
    while (doneOf(aheadBytes) !== null) await step();
    expect((await ahead).extent.end).toBe(aheadBytes);
  });

  test('limits hold in both directions, and the bytes are unchanged', async () => {
    const limits = { upBytesPerSecond: 1_000_000, downBytesPerSecond: 2_000_000 };
    const slow = createTransfer({ service, clock, log: silentLogger, limits });
    server.otherwise = serveBytes;
    const extent = { start: 0, end: 600_000 };

    const startedMs = clock.elapsedMs();
    const fetched = await slow.versions.readVersion(
      versionUrl(),
      extent,
      BYTES.byteLength,
      { kind: 'memory', isAhead: true },
      unheard,
      signal,
    );
    const fetchedMs = clock.elapsedMs();
    expect(fetched.bytes?.byteLength).toBe(extent.end);
    expect(Buffer.compare(fetched.bytes as Uint8Array, BYTES.subarray(0, extent.end))).toBe(0);
    expect(fetchedMs - startedMs).toBeGreaterThan(150);

    server.otherwise = reply(204);
    const body: BodyPiece[] = [{ kind: 'bytes', bytes: BYTES.subarray(0, 400_000) }];
    await slow.uploads.putFileData(fileUrl(), body, 'text/plain', signal);
    expect(clock.elapsedMs() - fetchedMs).toBeGreaterThan(200);
    expect(Buffer.compare(server.requests.at(-1)?.body as Buffer, BYTES.subarray(0, 400_000))).toBe(0);
  });
});
