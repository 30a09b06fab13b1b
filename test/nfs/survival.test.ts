import { createHash } from 'node:crypto';
import { renameSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFailed, test, vi } from 'vitest';
import { processLife } from '../../src/base/process-life.ts';
import { DarwinMount } from './darwin-mount.ts';
import { NfsClient } from './nfs-client.ts';

/**
 * The built program as on macOS, mounted in the background, whose process is killed. The client is as a kernel: it connects again, repeats calls
 * without a reply, and writes again what no COMMIT has confirmed.
 */

/** CFS_NFS_KILLS=20 for a long run. */
const KILLS = Number(process.env.CFS_NFS_KILLS ?? 2);
/** With more, each process serves for a while: the guard gives up after five in a row that did not. */
const BETWEEN_KILLS_MS = KILLS > 4 ? 3_000 : 300;
const WAIT_MS_MAX = 60_000;
const PIECE_BYTES = 30_000;
const WRITERS = 3;

let mount: DarwinMount;

beforeAll(async () => {
  mount = await DarwinMount.prepare();
}, WAIT_MS_MAX);
afterAll(() => mount?.dispose());

/** Another program that knows the exported path: the mount table shows it. @returns what it got */
async function intrude(port: number, path: string): Promise<string | null> {
  if (await canListen(port)) return 'the port';
  try {
    const client = await NfsClient.connect(port);
    const got = await client.mnt(path).then(
      () => 'the root',
      () => null,
    );
    client.close();
    return got;
  } catch {
    return null; // no process answers at the moment
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.on('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

function digestOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** As a kernel: until all bytes and a COMMIT have one verifier. */
async function save(client: NfsClient, file: Buffer, bytes: Buffer): Promise<void> {
  for (;;) {
    const verifiers: Buffer[] = [];
    for (let offset = 0; offset < bytes.byteLength; offset += PIECE_BYTES) {
      const { verifier } = await client.write(file, offset, bytes.subarray(offset, offset + PIECE_BYTES));
      verifiers.push(verifier);
    }
    const committed = await client.commit(file);
    if (verifiers.every((verifier) => verifier.equals(committed))) return;
  }
}

test('programs continue while the process of the mount is killed, nothing is lost or done twice, and no other program gets in', {
  timeout: 4 * WAIT_MS_MAX + KILLS * (BETWEEN_KILLS_MS + WAIT_MS_MAX),
}, async () => {
  onTestFailed(() => console.error(mount.log()));
  const { client, root, port, path } = await mount.mount();
  const expected = new Map<string, string>();
  const failures: unknown[] = [];
  let isOver = false;
  let reads = 0;
  const writer = async (number: number): Promise<void> => {
    const folder = await client.mkdir(root, `writer ${number}`);
    for (let turn = 0; !isOver; turn++) {
      // A save as by an editor, then a change in place.
      const bytes = Buffer.alloc(1 + ((turn * 37_777) % 200_000), `${number} ${turn} `);
      const draft = await client.create(folder, 'draft', Buffer.from(`${number}${turn}       `.slice(0, 8)));
      await save(client, draft, bytes);
      const name = `file ${turn % 5}`;
      await client.rename(folder, 'draft', folder, name);
      expected.set(`writer ${number}/${name}`, digestOf(bytes));
      const inner = await client.mkdir(folder, `folder ${turn}`);
      if (turn % 2 === 0) await client.rmdir(folder, `folder ${turn}`);
      else await client.symlink(inner, 'link', `../${name}`);
      const found = await client.lookup(folder, name);
      const { bytes: read } = await client.read(found, 0, 300_000);
      expect(digestOf(read)).toBe(digestOf(bytes));
      reads++;
    }
  };
  const writers = Array.from({ length: WRITERS }, (_, number) =>
    writer(number).catch((error: unknown) => {
      failures.push(error);
      isOver = true;
    }),
  );
  const intruder = (async (): Promise<number> => {
    let attempts = 0;
    while (!isOver) {
      const got = await intrude(port, path);
      if (got !== null) failures.push(new Error(`another program got ${got}`));
      attempts++;
      await setImmediate();
    }
    return attempts;
  })();
  const generations = new Set([await mount.process()]);
  for (let kill = 0; kill < KILLS && !isOver; kill++) {
    const [readsBefore, sinceMs] = [reads, performance.now()];
    const isTime = (): boolean => reads > readsBefore + WRITERS && performance.now() - sinceMs > BETWEEN_KILLS_MS;
    await vi.waitUntil(() => isOver || isTime(), { timeout: WAIT_MS_MAX });
    generations.add(await mount.killAndContinue());
  }
  const readsBefore = reads;
  await vi.waitUntil(() => isOver || reads > readsBefore + WRITERS, { timeout: WAIT_MS_MAX });
  isOver = true;
  await Promise.all(writers);
  expect(await intruder).toBeGreaterThan(KILLS);
  expect(failures).toEqual([]);
  expect(generations.size).toBe(KILLS + 1);

  const sync = await mount.ground.run('cfs', 'sync', '--wait');
  expect(sync.code, sync.stderr).toBe(0);
  const stored = await mount.server.reader.digests();
  const files = [...stored].filter(([path]) => expected.has(path));
  expect(new Map(files)).toEqual(expected);
  const names = [...stored.keys()].filter(
    (path) => /writer/.test(path) && !/writer \d(\/(file \d|folder \d+(\/link)?))?\/?$/.test(path),
  );
  expect(names, 'conflict copies and drafts').toEqual([]);

  const pid = (await mount.process()) ?? -1;
  expect((await mount.ground.run('cfs', 'umount')).code).toBe(0);
  expect(mount.ground.unmounted).toBe(`${mount.ground.directory}\n`);
  await vi.waitUntil(() => processLife(pid) === 'ended', { timeout: WAIT_MS_MAX });
  await vi.waitUntil(() => isRefused(port), { timeout: WAIT_MS_MAX, interval: 100 });
  client.close();
});

test('a mount whose process cannot be started again is taken away, and its port is free only then', {
  timeout: 4 * WAIT_MS_MAX,
}, async () => {
  onTestFailed(() => console.error(mount.log()));
  const { client, root, port } = await mount.mount();
  const file = await client.create(root, 'closed.txt');
  await save(client, file, Buffer.from('closed'));
  const pid = await mount.process();
  renameSync(mount.accountFile, `${mount.accountFile}.away`);

  process.kill(pid ?? Number.NaN, 'SIGKILL');
  await vi.waitUntil(() => /^-f /m.test(mount.ground.unmounted), { timeout: WAIT_MS_MAX });
  expect(mount.ground.unmounted.split('\n').at(-2)).toBe(`-f ${mount.ground.directory}`);
  expect(mount.ground.isMounted).toBe(false);
  renameSync(`${mount.accountFile}.away`, mount.accountFile);
  await vi.waitUntil(() => isRefused(port), { timeout: WAIT_MS_MAX, interval: 100 });
  client.close();
});

function isRefused(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.on('connect', () => {
      socket.destroy();
      resolve(false);
    });
    socket.on('error', () => resolve(true));
  });
}
