import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { checkBlobs } from '../../src/server/housekeeping.ts';
import { openParts } from '../../src/server/local-back-end.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { PortClaim } from '../harness/port-claim.ts';
import { type RawClient, signUp, texts } from './raw-client.ts';
import { StandInS3 } from './s3/stand-in-s3.ts';

/**
 * What was acknowledged survives SIGKILL of the server, wherever it strikes: the server dies at its first step that changes
 * the disk, then at its second, and so on, until a life goes by without dying; each time the next life is asked for all that
 * was acknowledged. What was under way has happened whole or not at all.
 */

const SCRIPT = fileURLToPath(new URL('./killed-server.mjs', import.meta.url));
const DATA = 'some bytes that matter, '.repeat(5000);

/** What a life of the server acknowledged. */
interface Acknowledged {
  folder?: string;
  /** A file that is small enough to lie in the database. */
  small?: string;
  file?: string;
  data?: string;
  version?: string;
  stored?: number;
  versionData?: string;
  copy?: string;
  renamed?: true;
  deleted?: true;
}

test.each([
  ['with all data on the disk', async () => null],
  ['while data move to an object store', () => StandInS3.start()],
])('an acknowledged request survives SIGKILL at every step, %s', { timeout: 600_000 }, async (_where, openStore) => {
  const store = await openStore();
  const directory = mkdtempSync(join(tmpdir(), 'cfs-killed-'));
  const claim = await PortClaim.make();
  const first = await ReferenceServer.open({ dataDirectory: directory, listen: { port: claim.port } });
  const { client, folder } = await signUp(first, 'a@example.com');
  await first.close();
  let lives = 0;

  for (let wasKilled = true; wasKilled; ) {
    lives += 1;
    const told: Acknowledged = {};
    const child = await start(directory, lives, store?.url);
    wasKilled = await live(client, folder('2'), `life ${lives}`, told).then(
      () => false,
      () => true,
    );
    await end(child);
    expect(child.signalCode, `life ${lives}`).toBe('SIGKILL');

    const server = await ReferenceServer.open({ dataDirectory: directory, objects: store?.open() ?? null });
    await check(client, told, `life ${lives}`);
    await server.close();
  }

  // Fewer would mean that the steps were not counted.
  expect(lives).toBeGreaterThan(30);
  const objects = store?.open() ?? null;
  const parts = openParts({ dataDirectory: directory, objects });
  expect((await checkBlobs(parts)).damage).toEqual([]);
  if (store !== null) {
    // Every object is known, and every known one that arrived is there.
    const known = [...parts.database.objects.keys()];
    expect(store.keys.filter((key) => !known.includes(key))).toEqual([]);
    expect(store.keys.length).toBeGreaterThan(lives / 2);
  }
  await parts.database.close();
  await objects?.close();
  await store?.close();
  rmSync(directory, { recursive: true });
  await claim.release();
});

/** Everything that changes something, once; notes down what was acknowledged. */
async function live(client: RawClient, parent: string, name: string, told: Acknowledged): Promise<void> {
  const ok = async (method: string, url: string, body: string, range?: string) => {
    const answer = await client.send(method, url, { body, headers: range === undefined ? {} : { Range: range } });
    if (answer.status >= 300) throw new Error(`${method} ${url}: ${answer.status}`);
    return answer;
  };
  told.folder = await client.createFolder(parent, name);
  const small = await client.createFile(told.folder, 'small');
  await ok('PUT', `${small}/data`, 'small');
  told.small = small;
  told.file = await client.createFile(told.folder, 'file');
  await ok('PUT', `${told.file}/data`, DATA);
  told.data = DATA;
  told.version = (await ok('POST', `${told.file}/version`, '')).headers.location as string;
  await client.send('PUT', `${told.version}/data`, { body: DATA, cutAfter: 50_000 }).catch(() => {});
  // Whether the line ended because of us or because of the server's death: the next question tells.
  for (let stored = -1; stored !== 50_000; ) {
    const seen = Number(texts((await client.get(told.version)).text, 'storedSize')[0]);
    if (Number.isNaN(seen)) throw new Error('no answer');
    stored = seen;
  }
  told.stored = 50_000;
  for (let status = 416; status === 416; ) {
    // 416 as long as the line that was cut is still being put down.
    const answer = await client.send('PUT', `${told.version}/data`, {
      body: DATA.slice(50_000),
      headers: { Range: 'bytes=50000-' },
    });
    status = answer.status;
  }
  told.versionData = DATA;
  told.copy = await client.create(
    told.folder,
    `<fileCopy source="${told.file}"><displayName>copy</displayName></fileCopy>`,
  );
  await ok('PUT', told.file, '<file><displayName>renamed</displayName></file>');
  told.renamed = true;
  await ok('DELETE', told.file, '');
  told.deleted = true;
}

async function check(client: RawClient, told: Acknowledged, life: string): Promise<void> {
  if (told.folder === undefined) return;
  const names = texts((await client.get(`${told.folder}/contents`)).text, 'displayName');
  if (told.small !== undefined) expect((await client.get(`${told.small}/data`)).text, `${life}: small`).toBe('small');
  if (told.copy !== undefined)
    expect((await client.get(`${told.copy}/data`)).text === DATA, `${life}: copy`).toBe(true);
  if (told.file === undefined) return;
  const info = await client.get(told.file);
  if (told.deleted === true) return expect(info.status, `${life}: deleted`).toBe(404);
  // The one request under way when it died may have been acted on.
  if (told.renamed === true && info.status === 404) return;
  expect(info.status, life).toBe(200);
  expect(names, life).toContain(texts(info.text, 'displayName')[0]);
  if (told.renamed === true) expect(texts(info.text, 'displayName'), life).toEqual(['renamed']);
  const size = texts(info.text, 'size')[0];
  expect(told.data === undefined ? ['-1', String(DATA.length)] : [String(DATA.length)], life).toContain(size);
  if (size !== '-1') expect((await client.get(`${told.file}/data`)).text === DATA, `${life}: data`).toBe(true);
  if (told.version === undefined) return;
  const version = await client.get(told.version);
  expect(version.status, life).toBe(200);
  const isComplete = texts(version.text, 'presentOnServer')[0] === 'true';
  if (told.versionData !== undefined) expect(isComplete, life).toBe(true);
  if (isComplete)
    return expect((await client.get(`${told.version}/data`)).text === DATA, `${life}: version`).toBe(true);
  const stored = Number(texts(version.text, 'storedSize')[0]);
  expect(stored, life).toBeGreaterThanOrEqual(told.stored ?? 0);
  const rest = await client.send('PUT', `${told.version}/data`, {
    body: DATA.slice(stored),
    headers: { Range: `bytes=${stored}-` },
  });
  expect(rest.status, life).toBe(200);
  expect((await client.get(`${told.version}/data`)).text === DATA, `${life}: resumed`).toBe(true);
}

async function start(directory: string, killAt: number, objects: string | undefined): Promise<ChildProcess> {
  const words = [SCRIPT, directory, String(killAt), ...(objects === undefined ? [] : [objects])];
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  const said = once(child.stdout as NodeJS.ReadableStream, 'data');
  const ended = once(child, 'exit').then(() => {
    throw new Error('the server ended before it listened');
  });
  await Promise.race([said, ended]);
  ended.catch(() => {});
  return child;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}
