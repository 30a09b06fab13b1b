import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Pool } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { compareInstallations } from '../../../src/server/installation-comparison.ts';
import { copyInstallation } from '../../../src/server/installation-copy.ts';
import { LocalInstallation } from '../../../src/server/local-installation.ts';
import { openPostgresAdministration } from '../../../src/server/postgres/postgres-back-end.ts';
import { PostgresInstallation } from '../../../src/server/postgres/postgres-installation.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { s3Location } from '../../../src/server/s3/s3-location.ts';
import { S3Requests } from '../../../src/server/s3/s3-requests.ts';
import { S3Store } from '../../../src/server/s3/s3-store.ts';
import { tellFigures } from '../../harness/figures.ts';
import { missingPrograms, titled } from '../../harness/requirement.ts';
import { missingPostgres, PostgresServer } from '../postgres/postgres-server.ts';
import { ServerProcess } from '../postgres/server-process.ts';
import { RawClient, signUp, signUpAt } from '../raw-client.ts';
import { until } from '../until.ts';
import { faultSuite } from './fault-suite.ts';
import { FaultyProxy } from './faulty-proxy.ts';
import { RADOSGW_PROGRAMS, Radosgw } from './radosgw.ts';
import { bytesOf, storeContract } from './store-contract.ts';

/** The object store against radosgw, the gateway of Ceph: what the stand-in claims, a real store does. */

const MIB = 1024 * 1024;
const LARGE_UPLOADS = 4;
/** Of each large upload; more than a few are on the disk of the store. */
const LARGE_MIB = Number(process.env.CFS_LARGE_UPLOAD_MIB ?? 24);
const SERVER_MIB_MAX = 512;
const missing = missingPrograms(...RADOSGW_PROGRAMS);

describe.skipIf(missing !== null)(titled('radosgw', missing), () => {
  let gateway: Radosgw;
  let proxy: FaultyProxy;
  let requests: S3Requests;
  let store: S3Store;
  /** Its requests pass the proxy. */
  let faultyStore: S3Store;

  const open = (clock = systemClock, url = gateway.url) =>
    new S3Store({ location: s3Location(url), credentials: gateway.credentials, clock });

  beforeAll(async () => {
    gateway = await Radosgw.start(LARGE_MIB > 100 ? 2 * LARGE_UPLOADS * LARGE_MIB * MIB : 0);
    const location = s3Location(gateway.url);
    const pool = new Pool(location.origin);
    requests = new S3Requests({ location, credentials: gateway.credentials, clock: systemClock, pool });
    await requests.send({ method: 'PUT' });
    store = open();
    proxy = await FaultyProxy.start(gateway.port);
    const impatient = {
      ...systemClock,
      sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(ms / 100, signal),
    };
    faultyStore = open(impatient, gateway.url.replace(`:${gateway.port}`, `:${proxy.port}`));
  }, 240_000);

  afterAll(async () => {
    await store?.close();
    await faultyStore?.close();
    await requests?.close();
    await proxy?.close();
    await gateway?.close();
  }, 60_000);

  describe('the store', () => storeContract(() => store));

  const unfinished = async () => {
    const { text } = await requests.send({ method: 'GET', query: { uploads: '' } });
    return [...text.matchAll(/<UploadId>/g)].length;
  };
  describe('behind a faulty proxy', () => faultSuite(() => ({ store: faultyStore, faults: proxy.faults, unfinished })));

  test('a signature by another secret is refused', async () => {
    const credentials = { ...gateway.credentials, secretAccessKey: 'another' };
    const other = new S3Store({ location: s3Location(gateway.url), credentials, clock: systemClock });

    await expect(other.readText('a key')).rejects.toThrow('SignatureDoesNotMatch (403)');
    await other.close();
  });

  test('versions of a server move to it, are read back, and are deleted', { timeout: 120_000 }, async () => {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-gateway-'));
    const server = await ReferenceServer.open({ dataDirectory: directory, objects: open() });
    const { client, folder } = await signUp(server, 'a@example.com', 100 * MIB);
    const bytes = bytesOf(19 * MIB);
    const small = bytesOf(100_000, 2);
    const file = await client.createFilled(folder('2'), 'long', bytes);
    const other = await client.createFilled(folder('2'), 'short', small);
    const blobs = join(directory, 'blobs');
    const onDisk = () => readdirSync(blobs).flatMap((name) => readdirSync(join(blobs, name)));
    await until(() => onDisk().length === 0 && server.versionsToMove === 0, 60_000);

    const digest = (data: Uint8Array) => createHash('sha256').update(data).digest('hex');
    expect(digest((await client.get(`${file}/data`)).bytes)).toBe(digest(bytes));
    expect(digest((await client.get(`${other}/data`)).bytes)).toBe(digest(small));
    const { bytes: part } = await client.get(`${file}/data`, { Range: 'bytes=8388000-8389000' });
    expect(part.equals(bytes.subarray(8_388_000, 8_389_001))).toBe(true);

    await client.send('DELETE', file);
    await client.send('DELETE', other);
    await server.collectObjects();
    expect(await server.collectObjects()).toBe(2);
    await server.close();
    rmSync(directory, { recursive: true });
  });

  const missingDatabase = missingPostgres();
  test.skipIf(missingDatabase !== null)(
    titled('versions of servers on one database lie in it, and a copy of that installation is equal', missingDatabase),
    { timeout: 180_000 },
    async () => {
      const directory = mkdtempSync(join(tmpdir(), 'cfs-gateway-'));
      const postgres = await PostgresServer.start();
      try {
        const url = await postgres.newDatabase();
        const prefixed = () => open(systemClock, gateway.url.replace('?', '/shared?'));
        const options = (number: number) => ({
          dataDirectory: join(directory, `${number}`),
          publicOrigin: 'http://cloud.example.com',
          ...{ objects: prefixed(), database: { url, partBytes: 6 * MIB, deletedAfterMs: 0 } },
        });
        const servers = [await ReferenceServer.open(options(1)), await ReferenceServer.open(options(2))] as const;
        const [one, other] = servers.map(({ port }) => `http://127.0.0.1:${port}`) as [string, string];
        const { administration } = servers[0];
        const user = await signUpAt(one, administration, 'a@example.com');
        const [first, second] = [user.client, new RawClient(other, user.client.token)];
        const pathOf = (location: string) => new URL(location).pathname;
        const file = pathOf(await first.createFile(`/folder/:sc:${user.uid}:2`, 'long'));
        const bytes = bytesOf(19 * MIB);
        expect((await first.send('PUT', `${file}/data`, { body: bytes })).status).toBe(204);
        const { bytes: across } = await second.get(`${file}/data`, { Range: `bytes=${6 * MIB - 9}-${12 * MIB + 9}` });
        expect(across.equals(bytes.subarray(6 * MIB - 9, 12 * MIB + 10))).toBe(true);
        const copy = `<fileCopy source="http://cloud.example.com${file}"><displayName>copy</displayName></fileCopy>`;
        const copied = pathOf(await second.create(`/folder/:sc:${user.uid}:2`, copy));
        await first.send('DELETE', file);
        expect(await servers[0].collectObjects()).toBe(0);
        expect((await first.get(`${copied}/data`)).bytes.equals(bytes)).toBe(true);
        await Promise.all(servers.map((server) => server.close()));

        const source = await PostgresInstallation.open(url, prefixed());
        const target = await LocalInstallation.open(join(directory, 'copy'), { isNew: true });
        await copyInstallation({ source, target, origin: 'http://cloud.example.com', report: () => {} });
        const found: string[] = [];
        await compareInstallations(source, target, (difference) => found.push(difference));
        expect(found).toEqual([]);
        await Promise.all([source.close(), target.close()]);

        const again = await ReferenceServer.open(options(3));
        await new RawClient(`http://127.0.0.1:${again.port}`, user.client.token).send('DELETE', copied);
        expect(await again.collectObjects()).toBe(4);
        await again.close();
      } finally {
        await postgres.close();
        rmSync(directory, { recursive: true });
      }
    },
  );

  test.skipIf(missingDatabase !== null)(
    titled(`${LARGE_UPLOADS} uploads of ${LARGE_MIB} MiB at once need at most ${SERVER_MIB_MAX} MiB`, missingDatabase),
    { timeout: 1_800_000 },
    async () => {
      const directory = mkdtempSync(join(tmpdir(), 'cfs-large-'));
      const postgres = await PostgresServer.start();
      const url = await postgres.newDatabase();
      const { accessKeyId, secretAccessKey } = gateway.credentials;
      const server = await ServerProcess.start(
        {
          dataDirectory: directory,
          publicOrigin: 'http://cloud.example.com',
          objects: gateway.url.replace('?', '/large?'),
          database: { url },
        },
        { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey },
      );
      try {
        const { administration, close } = await openPostgresAdministration(url);
        const { uid, client } = await signUpAt(server.origin, administration, 'a@example.com');
        await close();
        const piece = Buffer.from(bytesOf(MIB));
        const upload = async (nth: number): Promise<string> => {
          const file = new URL(await client.createFile(`/folder/:sc:${uid}:2`, `large ${nth}`)).pathname;
          const request = httpRequest(`${server.origin}${file}/data`, {
            ...{ method: 'PUT', agent: false },
            headers: { Authorization: client.token ?? '', 'Content-Length': LARGE_MIB * MIB },
          });
          const answered = once(request, 'response') as Promise<[IncomingMessage]>;
          await pipeline(Readable.from(Array.from({ length: LARGE_MIB }, () => piece)), request);
          expect((await answered)[0].statusCode).toBe(204);
          return file;
        };
        const startMs = performance.now();
        const files = await Promise.all(Array.from({ length: LARGE_UPLOADS }, (_, nth) => upload(nth)));
        const speed = (LARGE_UPLOADS * LARGE_MIB) / ((performance.now() - startMs) / 1000);
        const peakMib = server.peakBytes / MIB;
        tellFigures(`${LARGE_UPLOADS} × ${LARGE_MIB} MiB: ${speed.toFixed(1)} MiB/s, server ${peakMib.toFixed(0)} MiB`);
        expect(peakMib).toBeLessThan(SERVER_MIB_MAX);
        for (const file of files) {
          const end = { Range: `bytes=${LARGE_MIB * MIB - 1000}-` };
          expect((await client.get(`${file}/data`, end)).bytes.equals(piece.subarray(-1000))).toBe(true);
        }
      } finally {
        await server.close();
        await postgres.close();
        rmSync(directory, { recursive: true });
      }
    },
  );
});
