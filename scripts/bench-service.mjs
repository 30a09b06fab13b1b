// `npm run bench -- service`: the client and its peers in the same run on the same machine.
//   --bytes=N    length of the transferred file (1 GiB)
//   --rounds=N   of each transfer (3); medians count
//   --quick      128 MiB, two rounds, three turns of 5,000 small requests, no parser alone
// The reference server and a raw TCP server run in their own processes, so that CPU and memory here are those of the client.
import { execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, createWriteStream, mkdtempSync, rmSync, statSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Agent } from 'undici';
import { OURS, Results } from './measure/results.mjs';
import { warmMemory } from './measure/warm-memory.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const flag = (/** @type {string} */ name, /** @type {number} */ fallback) =>
  Number(process.argv.find((word) => word.startsWith(`--${name}=`))?.split('=')[1] ?? fallback);
const quick = process.argv.includes('--quick');
const BYTES = flag('bytes', quick ? 128 * 1024 ** 2 : 1024 ** 3);
// At least two: a gate limits the growth after the first one.
const ROUNDS = flag('rounds', quick ? 2 : 3);
const SMALL_REQUESTS = quick ? 5_000 : 20_000;
const AT_ONCE = 8;
const ENTRIES = 100_000;
const MIB = 1024 * 1024;
const execFileAsync = promisify(execFile);

const fromDist = (/** @type {string} */ path) => import(join(root, 'dist', path));
/** @param {import('node:net').Server} server @returns {number} */
const portOf = (server) => /** @type {import('node:net').AddressInfo} */ (server.address()).port;
if (process.argv.includes('--serve')) await serve();
else if (process.argv.includes('--raw')) rawServer();
else if (process.argv.includes('--bare')) bareFileServer();
else if (process.argv.includes('--decode')) await decodeOnce();
else await bench();

async function bench() {
  const results = new Results('service', { rounds: ROUNDS, quick, bytes: BYTES });
  await decodeListing(results);
  await smallRequests(results);
  await transfers(results);
  process.exitCode = results.finish();
}

/**
 * A listing of 100,000 entries, in a process of its own: CPU, memory above the idle process, longest turn of the loop.
 * @param {Results} results
 */
async function decodeListing(results) {
  const [process_, { cpu, bare, memory, turn }] = await child('--decode', ...(quick ? ['--quick'] : []));
  process_.kill();
  const [whole, above, longest] = ['decode 100,000 entries', '… memory above the idle process', '… longest turn'];
  for (const each of cpu) results.note(whole, 'ms of CPU', OURS, each);
  for (const each of bare) results.note(whole, 'ms of CPU', 'saxes alone', each);
  results.note(above, 'MiB', OURS, memory / MIB);
  results.note(longest, 'ms', OURS, turn);
  results.gate(whole, 'at most', 700);
  results.gate(above, 'at most', 64);
  results.gate(longest, 'at most', 10);
}

async function decodeOnce() {
  const { decodeCollectionContents } = await fromDist('protocol/messages.js');
  const { SaxesParser } = await import('saxes');
  const chunks = listingChunks();
  const decode = (/** @type {{ (): void; (): void; (): void; }} */ each) =>
    decodeCollectionContents(
      (async function* () {
        for (const chunk of chunks) {
          each();
          yield chunk;
        }
      })(),
    );
  global.gc?.();
  // The very first listing, before V8 has optimized code or the heap has grown.
  const idle = process.memoryUsage().rss;
  let peak = idle;
  const first = await decode(() => {
    peak = Math.max(peak, process.memoryUsage.rss());
  });
  if (first.files.length !== ENTRIES) throw new Error('not all entries');
  const cpu = [];
  const bare = [];
  let turn = 0;
  // More than the first few: V8 once stopped optimizing the parser at the seventh document. The quick run measures none of the earlier ones.
  for (let round = 0; round < (quick ? 8 : 11); round++) {
    global.gc?.();
    let before = process.cpuUsage();
    let done = false;
    let lastMs = performance.now();
    const tick = () => {
      if (done) return;
      turn = Math.max(turn, performance.now() - lastMs);
      lastMs = performance.now();
      setImmediate(tick);
    };
    setImmediate(tick);
    await decode(() => {});
    done = true;
    if (!quick || round >= 5) cpu.push(cpuMs(before));
    if (quick) continue; // no gate uses the following measures
    before = process.cpuUsage();
    const parser = new SaxesParser();
    for (const event of /** @type {const} */ (['opentag', 'closetag', 'text'])) parser.on(event, () => {});
    for (const chunk of chunks) parser.write(chunk.toString());
    parser.close();
    bare.push(cpuMs(before));
  }
  process.send?.({ cpu, bare, memory: peak - idle, turn });
}

/** The document in pieces as from a socket, built without garbage that would distort the measurement. */
function listingChunks() {
  const origin = 'https://api.example.com/file/:sc:566494:190_';
  const chunks = [Buffer.from('<collectionContents start="0" hasMore="false" end="99999">')];
  let chunk = Buffer.allocUnsafeSlow(64 * 1024);
  let used = 0;
  for (let i = 0; i < ENTRIES; i++) {
    const entry =
      `<file><displayName>a file number ${i}.txt</displayName><ref>${origin}${i}</ref><size>${i * 7}</size>` +
      '<lastModified>2011-08-28T23:03:48.000-07:00</lastModified><mediaType>text/plain</mediaType>' +
      `<presentOnServer>true</presentOnServer><fileData>${origin}${i}/data</fileData></file>`;
    if (used + entry.length > chunk.byteLength) {
      chunks.push(chunk.subarray(0, used));
      chunk = Buffer.allocUnsafeSlow(64 * 1024);
      used = 0;
    }
    used += chunk.write(entry, used, 'latin1');
  }
  return [...chunks, chunk.subarray(0, used), Buffer.from('</collectionContents>')];
}

/**
 * Requests of 1 KiB, eight at once: our client and undici's own dispatch, with the same raw server, alternating.
 * @param {Results} results
 */
async function smallRequests(results) {
  const { HttpService } = await fromDist('remote/http/http-service.js');
  const { systemClock } = await fromDist('base/clock.js');
  const { silentLogger } = await fromDist('base/log.js');
  const [server, baseUrl] = await child('--raw');
  const service = new HttpService({
    ...{ baseUrl, refreshToken: `${baseUrl}/app-authorization/x`, clock: systemClock, log: silentLogger },
    ...{ keys: { application: 'a', accessKeyId: 'a', privateAccessKey: 'a' }, userAgent: 'cfs-mount bench' },
  });
  const agent = new Agent({ connections: AT_ONCE, pipelining: 1 });
  const ours = async () => {
    const { chunks } = await service.readVersion(`${baseUrl}/v`, { start: 0, end: 1024 }, 1024);
    for await (const _ of chunks);
  };
  const bare = () =>
    new Promise((resolve, reject) => {
      const handler = {
        onRequestStart() {},
        onResponseStart() {},
        onResponseData() {},
        onResponseEnd: resolve,
        onResponseError: (/** @type {unknown} */ _, /** @type {Error} */ error) => reject(error),
      };
      agent.dispatch(
        { origin: baseUrl, path: '/v/data', method: 'GET', headers: { Authorization: 'x', 'User-Agent': 'x' } },
        handler,
      );
    });
  const measure = `1 KiB requests, ${AT_ONCE} at once`;
  for (let round = 0; round < (quick ? 3 : 5); round++) {
    for (const { name, request } of [
      { name: OURS, request: ours },
      { name: 'undici.dispatch', request: bare },
    ]) {
      const before = process.cpuUsage();
      const startMs = performance.now();
      let left = SMALL_REQUESTS;
      const worker = async () => {
        while (left-- > 0) await request();
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
      results.note(measure, 'per s', name, SMALL_REQUESTS / ((performance.now() - startMs) / 1000));
      results.note('… CPU of each', 'µs', name, (cpuMs(before) * 1000) / SMALL_REQUESTS);
    }
  }
  await service.close();
  await agent.close();
  server.kill();
  results.gate(measure, 'at least', 0.7, 'undici.dispatch');
}

/**
 * Transfers of one large file: the client and curl with the same server, and the server and a bare file server, alternating.
 * @param {Results} results
 */
async function transfers(results) {
  const { HttpService } = await fromDist('remote/http/http-service.js');
  const { createTransfer } = await fromDist('transfer/transfer.js');
  const { systemClock } = await fromDist('base/clock.js');
  const { silentLogger } = await fromDist('base/log.js');
  const directory = mkdtempSync(join(tmpdir(), 'cfs-bench-'));
  const [server, { origin, keys, username, password }] = await child('--serve', directory);
  const [bareServer, bareUrl] = await child('--bare', directory);
  try {
    const service = new HttpService({
      ...{
        baseUrl: origin,
        refreshToken: null,
        clock: systemClock,
        log: silentLogger,
        keys,
        userAgent: 'cfs-mount bench',
      },
    });
    const refreshToken = await service.signIn({ username, password });
    const transfer = createTransfer({ service, clock: systemClock, log: silentLogger });
    const authorization = await accessToken(origin, keys, refreshToken);
    // Not synchronous: undici counts the time of an idle connection in turns of the event loop.
    const curl = (/** @type {string[]} */ ...args) =>
      execFileAsync('curl', ['-sSf', '-H', `Authorization: ${authorization}`, ...args]);
    const { signal } = new AbortController();
    const [source, target] = [join(directory, 'source'), join(directory, 'target')];
    await writeSource(source);
    /** @type {import('../src/base/resources.ts').BodyPiece[]} */
    const pieces = [{ kind: 'file', path: source, offset: 0, length: BYTES }];
    const user = await service.user();
    const size = `${BYTES / MIB} MiB`;
    const [up, down] = [`upload ${size} from a file`, `download ${size} into a file`];
    const [serverUp, serverDown] = [`server: ${size} up, synced`, `server: ${size} down`];
    const idle = (await answered(server)).now;
    let firstPeak = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const file = await service.createFile(user.home, `large ${round}`, 'application/octet-stream');
      const ours = await service.createVersion(file);
      const theirs = await service.createVersion(file);
      const timed = async (/** @type {() => Promise<unknown>} */ act) => {
        warmMemory(directory, (BYTES / MIB) * 1.25);
        // The check takes seconds in one turn. A connection that the server closed meanwhile must not get the next upload.
        await sleep(10);
        const [cpu, startMs] = [process.cpuUsage(), performance.now()];
        await act();
        return { speed: BYTES / MIB / ((performance.now() - startMs) / 1000), cpu: cpuMs(cpu) };
      };
      const bySelf = async (/** @type {string} */ measure, /** @type {() => Promise<unknown>} */ act) => {
        const { speed, cpu } = await timed(act);
        results.note(measure, 'MiB/s', OURS, speed);
        results.note(`… CPU, ${measure === up ? 'up' : 'down'}`, 'ms', OURS, cpu);
      };
      /** curl with our server is a peer of the client, and the measure of the server. */
      const byCurl = async (
        /** @type {string} */ measure,
        /** @type {string} */ server,
        /** @type {{ (): import('node:child_process').PromiseWithChild<{ stdout: string; stderr: string; }>; (): import('node:child_process').PromiseWithChild<{ stdout: string; stderr: string; }>; }} */ ours,
        /** @type {{ (): import('node:child_process').PromiseWithChild<{ stdout: string; stderr: string; }>; (): import('node:child_process').PromiseWithChild<{ stdout: string; stderr: string; }>; }} */ bare,
      ) => {
        rmSync(target, { force: true });
        const { speed } = await timed(ours);
        results.note(measure, 'MiB/s', 'curl', speed);
        results.note(server, 'MiB/s', OURS, speed);
        rmSync(target, { force: true });
        results.note(server, 'MiB/s', 'node:http', (await timed(bare)).speed);
      };
      const put = ['-o', '/dev/null', '-T', source];
      await bySelf(up, () => transfer.uploads.putVersionData(ours, 0, pieces, signal));
      await byCurl(
        up,
        serverUp,
        () => curl('-H', 'Range: bytes=0-', ...put, `${theirs}/data`),
        () => curl(...put, bareUrl),
      );
      const whole = { start: 0, end: BYTES };
      const into = { kind: 'file', path: target };
      await bySelf(down, () => transfer.versions.readVersion(ours, whole, BYTES, into, () => {}, signal));
      if (statSync(target).size !== BYTES) throw new Error('the download is not whole');
      await byCurl(
        down,
        serverDown,
        () => curl('-o', target, `${ours}/data`),
        () => curl('-o', target, bareUrl),
      );
      rmSync(target);
      await service.deleteForever(file, 'file');
      if (round === 0) firstPeak = (await answered(server)).peak;
    }
    const lastPeak = (await answered(server)).peak;
    results.note(
      '… buffers, both ways',
      'MiB',
      OURS,
      (await liveBuffers(service, transfer, user, pieces, target)) / MIB,
    );
    results.note('server: memory that grows after the first round', 'MiB', OURS, (lastPeak - firstPeak) / MIB);
    results.note('server: memory above idle, garbage included', 'MiB', OURS, (lastPeak - idle) / MIB);
    await service.close();
    for (const measure of [up, down]) results.gate(measure, 'at least', 0.8, 'curl');
    results.gate('… buffers, both ways', 'at most', 32);
    for (const measure of [serverUp, serverDown]) results.gate(measure, 'at least', 0.7, 'node:http');
    results.gate('server: memory that grows after the first round', 'at most', 16);
  } finally {
    server.kill();
    bareServer.kill();
    rmSync(directory, { recursive: true, force: true });
  }
}

/**
 * Peak memory of both directions without garbage; in a separate pass, because the forced collections slow everything down.
 * @param {import('../src/remote/http/http-service.ts').HttpService} service
 * @param {import('../src/transfer/transfer.ts').Transfer} transfer
 * @param {{ home: import('../src/base/vocabulary.ts').ResourceUrl }} user
 * @param {import('../src/base/resources.ts').BodyPiece[]} pieces
 * @param {string} target
 */
async function liveBuffers(service, transfer, user, pieces, target) {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc');
  let most = 0;
  const sampler = setInterval(() => {
    gc();
    most = Math.max(most, process.memoryUsage().arrayBuffers);
  }, 20);
  const { signal } = new AbortController();
  const file = await service.createFile(user.home, 'measured', 'application/octet-stream');
  const version = await service.createVersion(file);
  await transfer.uploads.putVersionData(version, 0, pieces, signal);
  const whole = { start: 0, end: BYTES };
  await transfer.versions.readVersion(version, whole, BYTES, { kind: 'file', path: target }, () => {}, signal);
  clearInterval(sampler);
  return most;
}

/**
 * @param {string} origin
 * @param {{ accessKeyId: string; privateAccessKey: string }} keys
 * @param {string} refreshToken
 */
async function accessToken(origin, keys, refreshToken) {
  const { encodeTokenAuthRequest } = await fromDist('protocol/messages.js');
  const { accessKeyId, privateAccessKey } = keys;
  const body = encodeTokenAuthRequest({ accessKeyId, privateAccessKey, refreshToken });
  const answer = await fetch(`${origin}/authorization`, { method: 'POST', body });
  return answer.headers.get('location');
}

/** @param {import('node:fs').PathLike} path */
async function writeSource(path) {
  const stream = createWriteStream(path);
  const piece = Buffer.alloc(4 * MIB, 'not all of it the same ');
  for (let left = BYTES; left > 0; left -= piece.byteLength) {
    piece.writeUInt32LE(left >>> 0, 0);
    if (!stream.write(Buffer.from(piece.subarray(0, left)))) await once(stream, 'drain');
  }
  await new Promise((resolve) => stream.end(resolve));
}

/**
 * Starts another process of this script; resolves with its first message.
 * @param {string[]} args
 */
async function child(...args) {
  const process_ = fork(fileURLToPath(import.meta.url), args, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    execArgv: ['--expose-gc', ...(args[0] === '--decode' ? process.execArgv : [])],
  });
  const first = await new Promise((resolve, reject) => {
    process_.once('message', resolve);
    process_.once('exit', (code) => reject(new Error(`the server ended with ${code}`)));
  });
  return [process_, first];
}

async function serve() {
  const { ReferenceServer } = await fromDist('server/reference-server.js');
  const directory = join(String(process.argv.at(-1)), 'server');
  const server = await ReferenceServer.open({ dataDirectory: directory });
  const [username, password] = ['bench@example.com', 'bench'];
  await server.administration.addUser(username, password, { quotaBytes: 1024 ** 4 });
  const keys = {
    application: await server.administration.addApplication('bench'),
    ...(await server.administration.addKeyPair(username)),
  };
  process.send?.({ origin: server.origin, keys, username, password });
  let peak = 0;
  setInterval(() => {
    peak = Math.max(peak, process.memoryUsage.rss());
  }, 20);
  process.on('message', () => process.send?.({ now: process.memoryUsage.rss(), peak }));
  process.on('disconnect', () => process.exit());
}

/**
 * The figures of a child, on request.
 * @param {import('node:child_process').ChildProcess} process_
 */
function answered(process_) {
  process_.send('how much memory?');
  return new Promise((resolve) => process_.once('message', resolve));
}

/** One file, as node:http streams it to and from a disk: no token, no database, no sync. */
function bareFileServer() {
  const path = join(String(process.argv.at(-1)), 'bare');
  const server = createHttpServer(async (request, response) => {
    if (request.method === 'PUT') {
      await pipeline(request, createWriteStream(path));
      response.writeHead(204).end();
      return;
    }
    response.writeHead(200, { 'Content-Length': statSync(path).size });
    await pipeline(createReadStream(path), response).catch(() => {});
  });
  server.listen(0, '127.0.0.1', () => process.send?.(`http://127.0.0.1:${portOf(server)}/`));
  process.on('disconnect', () => process.exit());
}

/** Answers every request with 1 KiB, a request for a token with one that never ends. */
function rawServer() {
  const data = `HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n${'x'.repeat(1024)}`;
  const document =
    '<authorization><expiration>2999-01-01T00:00:00.000+00:00</expiration><user>http://x/user/1</user></authorization>';
  const token = `HTTP/1.1 201 Created\r\nLocation: http://x/authorization/T\r\nContent-Length: ${document.length}\r\n\r\n${document}`;
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => socket.write(bytes[0] === 80 ? token : data)); // P of POST
  });
  server.listen(0, '127.0.0.1', () => process.send?.(`http://127.0.0.1:${portOf(server)}`));
  process.on('disconnect', () => process.exit());
}

/** @param {NodeJS.CpuUsage | undefined} before */
function cpuMs(before) {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
