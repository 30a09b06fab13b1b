import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { FaultRule } from '../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { ServedSide } from '../harness/served-side.ts';
import { digest, filesIn } from '../harness/service-history.ts';
import { signUp, type TestUser } from '../server/raw-client.ts';
import { SeededRandom } from '../store/seeded-random.ts';

/** Two clients of one file, over HTTP, with a server that keeps five versions. */

const MIB = 1024 * 1024;
const SIZE_BYTES = 1.25 * MIB + 17;
const BLOCK_BYTES = 128 * 1024;

let directory: string;
let server: ReferenceServer;
let user: TestUser;
let sides: ServedSide[];

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-two-clients-'));
  server = await ReferenceServer.open({ dataDirectory: directory, versionsKept: 5 });
  user = await signUp(server, 'a@example.com');
  sides = [];
});

afterEach(async () => {
  for (const side of sides) await side.close();
  await server.close();
  rmSync(directory, { recursive: true, force: true });
});

async function mounted(host: string): Promise<ServedSide> {
  const side = await ServedSide.build(user, { host });
  sides.push(side);
  return side;
}

/** Cuts of bodies and lost answers, as a seed has it; more than enough for both to meet some. */
function weather(random: SeededRandom): FaultRule[] {
  const rules: FaultRule[] = [];
  for (let nth = 1; nth <= 6; nth++) {
    if (random.next() < 0.6) {
      rules.push({ on: 'PUT', path: 'fileVersionData', nth, then: { hangUpAfterBytes: 1 + random.below(SIZE_BYTES) } });
    }
    if (random.next() < 0.4) rules.push({ on: '*', path: '/version', nth, then: { actButNeverAnswer: true } });
  }
  return rules;
}

test.each([1, 2, 3, 4, 5, 6])(
  'of two clients that upload one file at once through cuts and lost responses, each version is from one client and both are kept (SEED=%i)',
  async (seed) => {
    const random = new SeededRandom(seed);
    const old = Buffer.from('before');
    const ours = [Buffer.alloc(SIZE_BYTES, `one ${seed} `), Buffer.alloc(SIZE_BYTES, `other ${seed} `)] as const;
    await user.client.createFilled(user.folder('2'), 'f', old);
    const one = await mounted('one');
    const other = await mounted('other');
    expect(digest(await one.mount.readFile('f'))).toBe(digest(old));
    expect(digest(await other.mount.readFile('f'))).toBe(digest(old));

    server.faults = weather(random);
    await one.mount.writeFile('f', ours[0]);
    await other.mount.writeFile('f', ours[1]);
    await Promise.all([one.converge(), other.converge()]);

    const known = new Set([old, ...ours].map(digest));
    const versions = (await filesIn(user.client, user.folder('2'))).flatMap((file) => file.versions);
    expect(versions.filter((version) => !known.has(version))).toEqual([]);
    for (const bytes of ours) expect(versions).toContain(digest(bytes));
  },
);

describe('a file of 64 MiB of which nothing is here, changed in one block while others make six versions', () => {
  const blocks = (64 * MIB) / BLOCK_BYTES;
  const base = Buffer.alloc(blocks * BLOCK_BYTES);
  for (let n = 0; n < blocks; n++) base.fill(`base ${n} `, n * BLOCK_BYTES, (n + 1) * BLOCK_BYTES);
  const edit = Buffer.alloc(BLOCK_BYTES, 'edit ');
  const edited = Buffer.from(base);
  edit.copy(edited, 20 * BLOCK_BYTES);
  const theirs = (n: number): Buffer => Buffer.alloc(3000, `theirs ${n} `);

  /** Time stands still for the mount meanwhile. */
  async function sixVersions(file: string): Promise<void> {
    for (let n = 1; n <= 6; n++) {
      expect((await user.client.send('PUT', `${file}/data`, { body: theirs(n) })).status).toBe(204);
    }
  }

  async function shown({ mount }: ServedSide): Promise<string[]> {
    const names = (await mount.readdir('.')).map(({ name }) => name).filter((name) => !name.startsWith('.'));
    return (await Promise.all(names.map(async (name) => digest(await mount.readFile(name))))).sort();
  }

  async function change(side: ServedSide): Promise<void> {
    const descriptor = await side.mount.open('f', 'r+');
    await side.mount.write(descriptor, 20 * BLOCK_BYTES, edit);
    await side.mount.close(descriptor);
  }

  test('the base of a partial edit is fetched from the first write on, so that the edit becomes a complete version and the remote one a copy', async () => {
    const file = await user.client.createFilled(user.folder('2'), 'f', base);
    const side = await mounted('one');
    // Nothing can be pushed.
    const offline = { times: 'always', then: { hangUpBefore: true } } as const;
    server.faults = [{ on: 'POST', path: 'fileVersions', ...offline }];
    await change(side);
    const served = (): number => server.requests.bytesOut;
    await side.until(() => served() > base.byteLength - 2 * BLOCK_BYTES, 'the base is fetched');
    // What was sent has also arrived: reading brings no more than what was still on its way.
    const fetched = served();
    expect(digest(await side.mount.readFile('f'))).toBe(digest(edited));
    expect(served() - fetched).toBeLessThan(4 * BLOCK_BYTES);
    await sixVersions(file);
    server.faults = [];
    await side.converge();

    const found = await filesIn(user.client, user.folder('2'));
    expect(found.map(({ versions }) => versions[0]).sort()).toEqual([digest(edited), digest(theirs(6))].sort());
    expect(await shown(side)).toEqual([digest(edited), digest(theirs(6))].sort());
  });

  test('a partial edit that started offline and whose base was dropped is parked, and no version is invented', async () => {
    const file = await user.client.createFilled(user.folder('2'), 'f', base);
    const side = await mounted('one');
    // The file is known, and which version it is; not a byte of it is here.
    const first = await side.mount.open('f', 'r+');
    await side.mount.read(first, base.byteLength - 10, 10);
    // To the mount the service is away, to others it is not.
    const away = { times: 'always', then: { hangUpBefore: true } } as const;
    server.faults = [
      { on: 'GET', ...away },
      { on: 'POST', ...away },
    ];
    await side.mount.write(first, 20 * BLOCK_BYTES, edit);
    await side.mount.close(first);
    await sixVersions(file);
    server.faults = [];
    await side.until(() => side.sync.status().parked.length > 0, 'it is parked');

    expect(side.sync.status().parked).toMatchObject([{ path: 'f', reason: 'base-lost' }]);
    const found = await filesIn(user.client, user.folder('2'));
    expect(found.map(({ versions }) => versions[0])).toEqual([digest(theirs(6))]);
    const again = await side.mount.open('f', 'r');
    expect(digest(await side.mount.read(again, 20 * BLOCK_BYTES, BLOCK_BYTES))).toBe(digest(edit));
    // What is nowhere is an error, not zeros nor bytes of theirs.
    for (const block of [0, 19, 21]) {
      const read = side.mount.read(again, block * BLOCK_BYTES, BLOCK_BYTES);
      await expect(read, `block ${block}`).rejects.toMatchObject({ errno: 'ESTALE' });
    }
    await side.mount.close(again);
  });

  test('a base whose transfer is cut repeatedly keeps the received bytes, and the rest is fetched', async () => {
    const file = await user.client.createFilled(user.folder('2'), 'f', base);
    const side = await mounted('one');
    const offline = { times: 'always', then: { hangUpBefore: true } } as const;
    server.faults = [
      { on: 'POST', path: 'fileVersions', ...offline },
      // Every second range is cut in its middle.
      ...[2, 4, 6, 8].map(
        (nth): FaultRule => ({ on: 'GET', path: 'fileVersionData', nth, then: { hangUpAfterBytes: MIB } }),
      ),
    ];
    await change(side);
    const served = (): number => server.requests.bytesOut;
    await side.until(() => served() > base.byteLength - 2 * BLOCK_BYTES, 'the base is fetched');
    expect(digest(await side.mount.readFile('f'))).toBe(digest(edited));
    await sixVersions(file);
    server.faults = [];
    await side.converge();

    const found = await filesIn(user.client, user.folder('2'));
    expect(found.map(({ versions }) => versions[0]).sort()).toEqual([digest(edited), digest(theirs(6))].sort());
  });
});
