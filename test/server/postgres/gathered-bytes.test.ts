import { hash } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import type { HashedBytes, HashedFile } from '../../../src/server/object-store.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { testUnless } from '../../harness/requirement.ts';
import { HeldRequest } from '../held-request.ts';
import { RawClient, signUp, type TestUser } from '../raw-client.ts';
import { until } from '../until.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

const MIB = 1024 * 1024;
const ORIGIN = 'http://cloud.example.com';
const SENDERS = 12;

testUnless(missingPostgres())(
  'an account gathers a quarter of all parts, and then short ones; its uploads and those of others are complete',
  { timeout: 120_000 },
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-gathered-'));
    const postgres = await PostgresServer.start();
    const server = await ReferenceServer.open({
      dataDirectory: directory,
      publicOrigin: ORIGIN,
      objects: new DirectoryStore(join(directory, 'objects')),
      database: { url: await postgres.newDatabase(), partBytes: MIB, gatheredBytes: 8 * MIB, partBuffers: 0 },
    });
    try {
      const origin = `http://127.0.0.1:${server.port}`;
      const at = { origin, administration: server.administration } as ReferenceServer;
      const [user, other] = [await signUp(at, 'a@example.com'), await signUp(at, 'b@example.com')];
      const newFile = async ({ uid, client }: TestUser): Promise<string> =>
        new URL(await client.createFile(`/folder/:sc:${uid}:2`, 'file')).pathname;
      const data = Buffer.alloc(MIB, 'some data, ');
      const held: { readonly file: string; readonly request: HeldRequest }[] = [];
      for (let nth = 0; nth < SENDERS; nth += 1) {
        const file = await newFile(user);
        const request = await HeldRequest.begin(server, user.client, `${ORIGIN}${file}/data`, {
          bodyBytes: MIB,
          front: data.subarray(0, MIB - 1),
        });
        held.push({ file, request });
      }
      const gathered = (): number => {
        const sizes = readdirSync(join(directory, 'incoming')).map(
          (name) => statSync(join(directory, 'incoming', name), { throwIfNoEntry: false })?.size ?? 0,
        );
        return sizes.reduce((sum, size) => sum + size, 0);
      };
      // Two whole parts, and half of one for each further upload, which has stored the other half.
      const objects = (): number =>
        readdirSync(join(directory, 'objects'), { recursive: true }).filter((name) => /\w{32}$/.test(String(name)))
          .length;
      await until(() => objects() >= SENDERS - 2);
      expect(gathered()).toBeLessThanOrEqual((2 + (SENDERS - 2) / 2) * MIB);

      const file = await newFile(other);
      expect((await other.client.send('PUT', `${file}/data`, { body: data })).status).toBe(204);
      for (const { file: each, request } of held) {
        await request.send(data.subarray(MIB - 1));
        expect(await request.status()).toBe(204);
        request.cut();
        const read = await new RawClient(origin, user.client.token).get(`${each}/data`);
        expect(read.bytes.equals(data)).toBe(true);
      }
      expect(gathered()).toBe(0);
    } finally {
      await server.close();
      await postgres.close();
      rmSync(directory, { recursive: true });
    }
  },
);

/** Stores an object when the test says so. */
class HeldStore extends DirectoryStore {
  readonly begun: string[] = [];
  readonly keys: string[] = [];
  readonly #release: (() => void)[] = [];
  isHeld = true;

  override async put(key: string, content: HashedBytes | HashedFile): Promise<string> {
    this.begun.push(content.sha256);
    this.keys.push(key);
    if (this.isHeld) await new Promise<void>((resolve) => this.#release.push(resolve));
    return super.put(key, content);
  }

  release(): void {
    this.#release.shift()?.();
  }

  releaseAll(): void {
    this.isHeld = false;
    for (const resolve of this.#release.splice(0)) resolve();
  }
}

testUnless(missingPostgres())(
  'a store gets sixteen parts at a time, each recorded before, and accounts take turns',
  { timeout: 120_000 },
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-puts-'));
    const postgres = await PostgresServer.start();
    const store = new HeldStore(join(directory, 'objects'));
    const url = await postgres.newDatabase();
    const shared = { publicOrigin: ORIGIN, objects: store, database: { url, partBuffers: 0 } };
    const server = await ReferenceServer.open({ dataDirectory: directory, ...shared });
    try {
      const at = {
        origin: `http://127.0.0.1:${server.port}`,
        administration: server.administration,
      } as ReferenceServer;
      const [user, other] = [await signUp(at, 'a@example.com'), await signUp(at, 'b@example.com')];
      const data = (nth: number) => Buffer.alloc(20_000, `data of ${nth}, `);
      const upload = async ({ uid, client }: TestUser, nth: number) => {
        const file = new URL(await client.createFile(`/folder/:sc:${uid}:2`, `${nth}`)).pathname;
        return (await client.send('PUT', `${file}/data`, { body: data(nth) })).status;
      };
      // A complete part lies in a file until it is stored.
      const received = () => {
        const incoming = join(directory, 'incoming');
        return readdirSync(incoming).filter((name) => statSync(join(incoming, name)).size === 20_000).length;
      };
      const uploads = Array.from({ length: 40 }, (_, nth) => upload(user, nth));
      await until(() => store.begun.length >= 16 && received() === 40, 60_000);
      uploads.push(upload(other, 40));
      await until(() => received() === 41);
      expect(store.begun).toHaveLength(16);
      // Recorded before their first byte: a server that dies now leaves no unknown object.
      const observer = await Postgres.open(url, { connectionsMax: 1 });
      const recorded = await observer.rows<{ key: string }>("SELECT key FROM objects WHERE state = 'arriving'");
      await observer.close();
      expect(recorded.map(({ key }) => key).sort()).toEqual([...store.keys].sort());

      const others = hash('sha256', data(40), 'hex');
      while (!store.begun.includes(others)) {
        const before = store.begun.length;
        store.release();
        await until(() => store.begun.length > before);
      }

      expect(store.begun.length).toBeLessThan(30);
      store.releaseAll();
      expect(new Set(await Promise.all(uploads))).toEqual(new Set([204]));
    } finally {
      store.releaseAll();
      await server.close();
      await postgres.close();
      rmSync(directory, { recursive: true });
    }
  },
);
