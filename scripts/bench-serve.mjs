// `npm run bench -- serve`: `cfs serve`. Small requests to one server and to two with a database, and to one without; many large uploads
// with a database and an object store, with an object store only, and without both.
//   --rounds=N   of large uploads (1); small requests have three times as many
//   --quick      a 32nd of the bytes, one second of each small request
//   --small      only the small requests; --large: only the large uploads; --shared: only those with a database
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
import { databasePrograms, startDatabase } from './measure/database.mjs';
import { OURS, Results } from './measure/results.mjs';
import { CLIENTS, smallRequests } from './measure/serve-rates.mjs';

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
const SHARED = 'with --database';
const SMALL_ROUNDS = 3 * ROUNDS;
const SMALL_SECONDS = quick ? 1 : 4;
const TWO = 'two servers';
const EMBEDDED = 'without --database';

/** @typedef {Awaited<ReturnType<typeof startDatabase>>} Database */

const fromDist = (/** @type {string} */ path) => import(join(root, 'dist', path));
if (process.argv.includes('--serve')) await serve(JSON.parse(process.argv.at(-1) ?? ''));
else if (process.argv.includes('--store')) store(...process.argv.slice(-2));
else await bench();

async function bench() {
  const results = new Results('serve', { rounds: ROUNDS, quick });
  const programs = databasePrograms();
  const database = programs === undefined ? null : await startDatabase(programs);
  if (database === null) console.log('a database: not measured, PostgreSQL is not installed');
  try {
    if (!process.argv.includes('--large')) await small(results, database);
    if (!process.argv.includes('--small')) await large(results, database);
  } finally {
    await database?.end();
  }
  process.exitCode = results.finish();
}

/**
 * @param {Results} results
 * @param {Database | null} database
 */
async function large(results, database) {
  const others = process.argv.includes('--shared') ? [] : [OURS, WITHOUT];
  const peers = [...(database === null ? [] : [SHARED]), ...others];
  for (let round = 0; round < ROUNDS; round++)
    for (const load of LOADS) for (const peer of peers) await measure(results, load, peer, database);
  for (const { store: kind } of LOADS) {
    if (others.length > 0) results.gate(`… memory of the server, ${kind}`, 'at most', RSS_MIB_MAX);
    if (database !== null) results.gate(`… memory of the server with a database, ${kind}`, 'at most', RSS_MIB_MAX);
  }
}

/**
 * Small requests of eight clients. `OURS` is one server with a database.
 * @param {Results} results
 * @param {Database | null} database
 */
async function small(results, database) {
  let databases = 0;
  const measureOne = async (/** @type {string} */ peer, /** @type {number} */ accounts) => {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-bench-'));
    const name = `bench${databases++}`;
    const url = peer === EMBEDDED ? null : (database?.create(name) ?? null);
    if (peer !== EMBEDDED && url === null) return rmSync(directory, { recursive: true });
    /** @type {{ process: import("node:child_process").ChildProcess, first: any }[]} */
    const servers = [];
    try {
      const objects = url === null ? null : join(directory, 'objects');
      for (let nth = 0; nth < (peer === TWO ? 2 : 1); nth++) {
        const data = join(directory, `${nth}`);
        servers.push(
          await child('--serve', JSON.stringify({ url, objects, directory: data, accounts: nth === 0 ? accounts : 0 })),
        );
      }
      const users = servers[0]?.first.users;
      const places = Array.from({ length: CLIENTS }, (_, nth) => ({
        origin: servers[nth % servers.length]?.first.local,
        ...users[nth % users.length],
      }));
      // V8 compiles the server meanwhile: the first thousands of requests take two to three times as long. Each server gets as many.
      for (const _ of servers) await smallRequests(places, SMALL_SECONDS);
      const before = await costs(servers, database, name);
      const { creations, uploads } = await smallRequests(places, SMALL_SECONDS);
      const after = await costs(servers, database, name);
      const of = accounts === 1 ? 'one account' : `${accounts} accounts`;
      results.note(`creations, ${of}`, '/s', peer, creations);
      results.note(`uploads of 1 KiB, ${of}`, '/s', peer, uploads);
      const requests = (creations + uploads) * SMALL_SECONDS;
      results.note(
        `… processor time of the server, ${of}`,
        'µs a request',
        peer,
        ((after.server - before.server) / requests) * 1e6,
      );
      if (url === null) return;
      results.note(
        `… processor time of the database, ${of}`,
        'µs a request',
        peer,
        ((after.database - before.database) / requests) * 1e6,
      );
      results.note(`… transactions, ${of}`, 'a request', peer, (after.transactions - before.transactions) / requests);
    } finally {
      for (const each of servers.reverse()) each.process.kill('SIGKILL');
      rmSync(directory, { recursive: true, force: true });
    }
  };
  for (let round = 0; round < SMALL_ROUNDS; round++)
    for (const accounts of [1, CLIENTS]) for (const peer of [OURS, TWO, EMBEDDED]) await measureOne(peer, accounts);
  if (database === null) return;
  for (const of of ['one account', `${CLIENTS} accounts`]) {
    for (const kind of ['creations', 'uploads of 1 KiB']) {
      results.gate(`${kind}, ${of}`, 'at least', 1000);
      results.gate(`${kind}, ${of}`, 'at most', 1.05, TWO);
    }
  }
}

/**
 * Processor time in seconds, and transactions, so far.
 * @param {{ process: import('node:child_process').ChildProcess }[]} servers
 * @param {Database | null} database
 * @param {string} name
 */
async function costs(servers, database, name) {
  const figures = await Promise.all(servers.map(({ process: each }) => figuresOf(each)));
  // Counts of sessions appear within a second (PGSTAT_MIN_INTERVAL).
  await sleep(1500);
  return {
    server: figures.reduce((sum, { cpu }) => sum + cpu, 0),
    database: database?.cpuSeconds() ?? 0,
    transactions: database?.transactions(name) || 0,
  };
}

/**
 * @param {Results} results
 * @param {typeof LOADS[number]} load
 * @param {string} peer
 * @param {Database | null} database
 */
async function measure(results, { uploads, bytes, store: kind }, peer, database) {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-bench-'));
  const children = [];
  try {
    let objects = null;
    if (peer !== WITHOUT) {
      const s3 = await child('--store', kind, join(directory, 'store'));
      children.push(s3.process);
      objects = `s3://bench?endpoint=${s3.first}`;
    }
    const url = peer === SHARED ? (database?.create(`large_${randomUUID().slice(0, 8)}`) ?? null) : null;
    const server = await child(
      '--serve',
      // An account has a quarter of the buffers for parts: several accounts use them all.
      JSON.stringify({ url, objects, directory: join(directory, 'data'), accounts: Math.min(uploads, CLIENTS) }),
    );
    children.push(server.process);
    const { local: origin, users } = server.first;
    const startMs = performance.now();
    await Promise.all(
      Array.from({ length: uploads }, (_, nth) =>
        upload({ origin, ...users[nth % users.length], name: `${nth}`, bytes }),
      ),
    );
    const title = `${uploads} uploads of ${bytes / MIB} MiB at once, ${kind}`;
    const total = (uploads * bytes) / MIB;
    results.note(title, 'MiB/s', peer, total / ((performance.now() - startMs) / 1000));
    let figures = await figuresOf(server.process);
    for (; figures.left > 0; figures = await figuresOf(server.process)) await sleep(100);
    if (peer === OURS) {
      results.note(`… moved to the store, ${kind}`, 'MiB/s', peer, total / ((performance.now() - startMs) / 1000));
    }
    const memory = figures.peak / MIB;
    if (peer === SHARED) results.note(`… memory of the server with a database, ${kind}`, 'MiB', OURS, memory);
    else results.note(`… memory of the server, ${kind}`, 'MiB', peer, memory);
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
 * @returns {Promise<{ peak: number, left: number, cpu: number }>}
 */
function figuresOf(process_) {
  process_.send('figures');
  return new Promise((resolve) => process_.once('message', (figures) => resolve(/** @type {any} */ (figures))));
}

/**
 * @param {{ url?: string | null, objects: string | null, directory: string, accounts: number }} options `url`: of the database; `objects`:
 *   the URL of an S3 store, or a directory
 */
async function serve({ url = null, objects: location, directory, accounts }) {
  const { ReferenceServer } = await fromDist('server/reference-server.js');
  const { openS3 } = await fromDist('server/s3/open-s3.js');
  const { DirectoryStore } = await fromDist('server/directory-store.js');
  const { systemClock } = await fromDist('base/clock.js');
  const env = { AWS_ACCESS_KEY_ID: 'bench', AWS_SECRET_ACCESS_KEY: 'bench' };
  const isS3 = location?.startsWith('s3:') === true;
  const objects = location === null ? null : isS3 ? openS3(location, env, systemClock) : new DirectoryStore(location);
  const shared = url === null ? {} : { database: { url }, publicOrigin: 'http://bench.example.com' };
  const server = await ReferenceServer.open({ dataDirectory: directory, objects, ...shared });
  const local = `http://127.0.0.1:${server.port}`;
  const users = [];
  for (let nth = 0; nth < accounts; nth++) users.push(await signUp(server, local, `bench${nth}@example.com`));
  let peak = 0;
  setInterval(() => {
    peak = Math.max(peak, process.memoryUsage.rss());
  }, 20);
  // Every long version is a file until it has moved.
  const blobs = join(directory, 'blobs');
  const left = () =>
    isS3 && url === null ? readdirSync(blobs).flatMap((name) => readdirSync(join(blobs, name))).length : 0;
  process.on('message', () => {
    const { user, system } = process.cpuUsage();
    process.send?.({ peak, left: left(), cpu: (user + system) / 1e6 });
  });
  process.on('disconnect', () => process.exit());
  process.send?.({ local, users });
}

/**
 * @param {import('../src/server/reference-server.ts').ReferenceServer} server
 * @param {string} local
 * @param {string} username
 */
async function signUp(server, local, username) {
  const { encodeTokenAuthRequest, encodeAppAuthorization } = await fromDist('protocol/messages.js');
  const password = 'bench';
  const { userId } = await server.administration.addUser(username, password, {
    quotaBytes: 1024 ** 4,
    scryptCost: 1024,
  });
  const application = await server.administration.addApplication('bench');
  const keys = await server.administration.addKeyPair(username);
  const post = async (/** @type {string} */ path, /** @type {any} */ body) =>
    (await fetch(`${local}${path}`, { method: 'POST', body })).headers.get('location');
  const refreshToken = await post(
    '/app-authorization',
    encodeAppAuthorization({ username, password, application, ...keys }),
  );
  const token = await post('/authorization', encodeTokenAuthRequest({ ...keys, refreshToken }));
  return { token, folder: `${local}/folder/:sc:${userId}:2` };
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
