// `npm run bench -- serve`: many large uploads to `cfs serve`, with and without an object store.
//   --rounds=N   (1)
//   --quick      a 32nd of the bytes
// The stores are in a process of their own, without an S3 server's work: one forgets the bytes, one keeps them in files. The memory is
// that of the server, until every version has moved.
import { fork } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { createWriteStream, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer, request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { OURS, Results } from './measure/results.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const quick = process.argv.includes('--quick');
const ROUNDS = Number(process.argv.find((word) => word.startsWith('--rounds='))?.split('=')[1] ?? 1);
const MIB = 1024 * 1024;
const LOADS = [
  { uploads: 64, bytes: (quick ? 4 : 128) * MIB, store: 'discard' },
  { uploads: 4, bytes: (quick ? 32 : 1024) * MIB, store: 'disk' },
];
const RSS_MIB_MAX = 512;
const WITHOUT = 'without --objects';

const fromDist = (/** @type {string} */ path) => import(join(root, 'dist', path));
if (process.argv.includes('--serve')) await serve(...process.argv.slice(-2));
else if (process.argv.includes('--store')) store(...process.argv.slice(-2));
else await bench();

async function bench() {
  const results = new Results('serve', { rounds: ROUNDS, quick });
  for (let round = 0; round < ROUNDS; round++) {
    for (const load of LOADS) {
      await measure(results, load, OURS);
      await measure(results, load, WITHOUT);
    }
  }
  for (const load of LOADS) results.gate(`… memory of the server, ${load.store}`, 'at most', RSS_MIB_MAX);
  process.exitCode = results.finish();
}

/**
 * @param {Results} results
 * @param {typeof LOADS[number]} load
 * @param {string} peer
 */
async function measure(results, { uploads, bytes, store: kind }, peer) {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-bench-'));
  const children = [];
  try {
    let url = 'none';
    if (peer === OURS) {
      const s3 = await child('--store', kind, join(directory, 'store'));
      children.push(s3.process);
      url = `s3://bench?endpoint=${s3.first}`;
    }
    const server = await child('--serve', url, join(directory, 'data'));
    children.push(server.process);
    const { origin, token, folder } = /** @type {{ origin: string, token: string, folder: string }} */ (server.first);
    const startMs = performance.now();
    await Promise.all(
      Array.from({ length: uploads }, (_, nth) => upload({ origin, token, folder, name: `${nth}`, bytes })),
    );
    const title = `${uploads} uploads of ${bytes / MIB} MiB at once, ${kind}`;
    const total = (uploads * bytes) / MIB;
    results.note(title, 'MiB/s', peer, total / ((performance.now() - startMs) / 1000));
    let figures = await figuresOf(server.process);
    for (; figures.left > 0; figures = await figuresOf(server.process)) await sleep(100);
    if (peer === OURS) {
      results.note(`… moved to the store, ${kind}`, 'MiB/s', peer, total / ((performance.now() - startMs) / 1000));
    }
    results.note(`… memory of the server, ${kind}`, 'MiB', peer, figures.peak / MIB);
  } finally {
    for (const each of children.reverse()) each.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  }
}

/** @param {{ origin: string, token: string, folder: string, name: string, bytes: number }} upload */
async function upload({ origin, token, folder, name, bytes }) {
  const made = await fetch(folder, {
    method: 'POST',
    headers: { Authorization: token },
    body: `<file><displayName>${name}</displayName><mediaType></mediaType></file>`,
  });
  const file = made.headers.get('location');
  const piece = Buffer.alloc(MIB, name);
  const pieces = Readable.from(
    (function* () {
      for (let left = bytes; left > 0; left -= piece.byteLength) yield piece;
    })(),
  );
  const headers = { Authorization: token, 'Content-Length': bytes };
  const request = httpRequest(`${origin}${new URL(`${file}/data`).pathname}`, { method: 'PUT', headers, agent: false });
  const answered = new Promise((resolve, reject) => {
    request.on('response', (response) => response.resume().on('end', () => resolve(response.statusCode)));
    request.on('error', reject);
  });
  await pipeline(pieces, request);
  if ((await answered) !== 204) throw new Error(`upload: ${await answered}`);
}

/**
 * Starts another process of this script; resolves with its first message.
 * @param {string[]} args
 */
async function child(...args) {
  const process_ = fork(fileURLToPath(import.meta.url), args, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    execArgv: [],
  });
  const first = await new Promise((resolve, reject) => {
    process_.once('message', resolve);
    process_.once('exit', (code) => reject(new Error(`${args[0]} ended with ${code}`)));
  });
  return { process: process_, first };
}

/**
 * @param {import('node:child_process').ChildProcess} process_
 * @returns {Promise<{ peak: number, left: number }>}
 */
function figuresOf(process_) {
  process_.send('figures');
  return new Promise((resolve) => process_.once('message', (figures) => resolve(/** @type {any} */ (figures))));
}

/**
 * @param {string} [url] of the store, or `none`
 * @param {string} [directory]
 */
async function serve(url = 'none', directory = '') {
  const { ReferenceServer } = await fromDist('server/reference-server.js');
  const { openS3 } = await fromDist('server/s3/open-s3.js');
  const { systemClock } = await fromDist('base/clock.js');
  const { encodeTokenAuthRequest, encodeAppAuthorization } = await fromDist('protocol/messages.js');
  const env = { AWS_ACCESS_KEY_ID: 'bench', AWS_SECRET_ACCESS_KEY: 'bench' };
  const objects = url === 'none' ? null : openS3(url, env, systemClock);
  const server = await ReferenceServer.open({ dataDirectory: directory, objects });
  const [username, password] = ['bench@example.com', 'bench'];
  const { userId } = await server.administration.addUser(username, password, { quotaBytes: 1024 ** 4 });
  const application = await server.administration.addApplication('bench');
  const { accessKeyId, privateAccessKey } = await server.administration.addKeyPair(username);
  const post = async (/** @type {string} */ path, /** @type {any} */ body) =>
    (await fetch(`${server.origin}${path}`, { method: 'POST', body })).headers.get('location');
  const keys = { accessKeyId, privateAccessKey };
  const refreshToken = await post(
    '/app-authorization',
    encodeAppAuthorization({ username, password, application, ...keys }),
  );
  const token = await post('/authorization', encodeTokenAuthRequest({ ...keys, refreshToken }));
  let peak = 0;
  setInterval(() => {
    peak = Math.max(peak, process.memoryUsage.rss());
  }, 20);
  // Every long version is a file until it has moved.
  const blobs = join(directory, 'blobs');
  const left = () =>
    objects === null ? 0 : readdirSync(blobs).flatMap((name) => readdirSync(join(blobs, name))).length;
  process.on('message', () => process.send?.({ peak, left: left() }));
  process.on('disconnect', () => process.exit());
  process.send?.({ origin: server.origin, token, folder: `${server.origin}/folder/:sc:${userId}:2` });
}

/**
 * What the server needs of an S3 store. Bodies are not compared with their signed hashes.
 * @param {string} [kind] `discard` or `disk`
 * @param {string} [directory]
 */
function store(kind = 'discard', directory = '') {
  mkdirSync(directory, { recursive: true });
  const server = createServer(async (request, response) => {
    const query = new URL(request.url ?? '', 'http://store').searchParams;
    const { method } = request;
    if (method === 'PUT' && kind === 'disk') await pipeline(request, createWriteStream(join(directory, randomUUID())));
    else for await (const _ of request);
    const etag = `"${createHash('md5').update(randomUUID()).digest('hex')}"`;
    if (method === 'GET' || method === 'HEAD') return void response.writeHead(404).end();
    if (method === 'PUT') return void response.writeHead(200, { etag, 'content-length': 0 }).end();
    if (method === 'DELETE') return void response.writeHead(204).end();
    response.end(
      query.has('uploads')
        ? `<InitiateMultipartUploadResult><UploadId>${randomUUID()}</UploadId></InitiateMultipartUploadResult>`
        : `<CompleteMultipartUploadResult><ETag>${etag}</ETag></CompleteMultipartUploadResult>`,
    );
  });
  server.listen(0, '127.0.0.1', () => {
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    process.send?.(`http://127.0.0.1:${port}`);
  });
  process.on('disconnect', () => process.exit());
}
