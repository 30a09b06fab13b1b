// The gates for bytes: uncached reads, cached reads, writes and uploads, with a latency of 30 ms and a bandwidth of
// 25 MB/s per connection, and once without latency. Compared with rclone's mount, curl, libfuse's passthrough and ext4 in the same run.
//   npm run bench -- content --rounds=N   of each measurement (3)
//   npm run bench -- content --tls        every row by TLS; the results are content-tls
//   npm run bench -- content --part=fresh | read | again | write | upload | busy | near   one part (all of them without the flag)
import { execFileSync, spawn } from 'node:child_process';
import { randomFillSync } from 'node:crypto';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Agent, request } from 'undici';
import { dropPageCache, Ground, run } from './measure/ground.mjs';
import { OURS, Results } from './measure/results.mjs';
import { warmMemory } from './measure/warm-memory.mjs';

const quick = process.argv.includes('--quick');
const tls = process.argv.includes('--tls');
const only = process.argv.find((word) => word.startsWith('--part='))?.slice('--part='.length) ?? null;
const ROUNDS = quick ? 1 : Number(process.argv.find((word) => word.startsWith('--rounds='))?.split('=')[1] ?? 3);
const BIG_MIB = quick ? 64 : 256;
const HUGE_MIB = quick ? 128 : 1024;
const RANDOM_READS = quick ? 40 : 200;
const FRESH_ROUNDS = quick ? 3 : 7;
const GET_BYTES = 64 * 1024;
const CONNECTIONS = 8;
const CONNECTION_MB_PER_SECOND = 25;
const LATENCY_MS = 30;
const FAR = ['--latency', `${LATENCY_MS}ms`, '--bandwidth', `${CONNECTION_MB_PER_SECOND}MB`];
const LOOKS = fileURLToPath(new URL('./measure/looks.mjs', import.meta.url));

let isCodeStored = false;
const results = new Results(tls ? 'content-tls' : 'content', {
  rounds: ROUNDS,
  quick,
  bigMiB: BIG_MIB,
  hugeMiB: HUGE_MIB,
});
const rate = (/** @type {number} */ mib, /** @type {number} */ seconds) => (mib * 1.048576) / seconds;
const secondsToRead = (/** @type {string} */ path) => run(`cat ${path} > /dev/null`).seconds;

/**
 * A file without repeated content.
 * @param {import('node:fs').PathLike} path
 * @param {number} mib
 */
function bytesFile(path, mib) {
  const fd = openSync(path, 'w');
  const block = Buffer.alloc(1024 ** 2);
  for (let i = 0; i < mib; i++) {
    if (i % 16 === 0) randomFillSync(block);
    block.writeUInt32LE(i, 0);
    writeSync(fd, block);
  }
  closeSync(fd);
}

/**
 * Offsets without equal distances, which read-ahead would detect.
 * @param {number} i
 */
function hash(i) {
  const mixed = Math.imul(i + 1, 0x9e3779b1);
  return Math.imul(mixed ^ (mixed >>> 15), 0x85ebca77) >>> 0;
}

/**
 * Single reads timed inside one process: milliseconds.
 * @param {string} file
 * @param {number[]} offsets
 * @param {number} length
 */
function timedReads(file, offsets, length) {
  const script = `const fs=require('fs');const fd=fs.openSync(${JSON.stringify(file)},'r');const b=Buffer.alloc(${length});
    const t=[];for(const o of ${JSON.stringify(offsets)}){const s=performance.now();fs.readSync(fd,b,0,${length},o);t.push(performance.now()-s);}
    console.log(JSON.stringify(t));`;
  return JSON.parse(execFileSync(process.execPath, ['-e', script], { encoding: 'utf8', timeout: 300_000 }));
}

/**
 * Bytes of files that a mount has fetched since its start.
 * @param {import('./measure/ground.mjs').Mounted} mount
 */
function fetchedBytes(mount) {
  return Number(/^cfs_bytes_total\{[^}]*direction="down"[^}]*\} (\d+)/m.exec(mount.cfs('metrics'))?.[1]);
}

/**
 * Private memory (RssAnon and shared slots) of a process, five times a second, in a process of its own.
 * @returns the peak, MiB
 * @param {number} pid
 */
function watchMemory(pid) {
  const script = `const fs=require('fs');let peak=0;const look=()=>{try{const s=fs.readFileSync('/proc/${pid}/status','utf8');
    const of=(n)=>Number(new RegExp(n+':\\\\s+(\\\\d+) kB').exec(s)?.[1]??0);peak=Math.max(peak,of('RssAnon')+of('RssShmem'));}catch{}};
    setInterval(look,200);process.on('SIGTERM',()=>{look();fs.writeSync(1,String(peak/1024));process.exit(0)});
    process.stdin.resume().on('end',()=>process.exit(1));`; // with this process
  const child = spawn(process.execPath, ['-e', script], { stdio: ['pipe', 'pipe', 'inherit'] });
  /** @type {Buffer[]} */
  const text = [];
  child.stdout.on('data', (chunk) => text.push(chunk));
  return async (/** @type {string} */ what) => {
    const ended = new Promise((resolve) => child.once('close', resolve));
    child.kill();
    await ended;
    const peak = Number(Buffer.concat(text));
    if (!(peak > 0)) throw new Error(`the memory of process ${pid} was never measured`);
    results.note(`private memory, ${what}`, 'MiB', OURS, peak);
  };
}

/**
 * Writes files to the server by a mount that is ended afterwards.
 * @param {string[][]} files
 */
async function fillServer(files) {
  const writer = ground.mount('planter');
  for (const [name, source] of files) run(`cp ${ground.base}/${source} ${writer.directory}/${name}`);
  // The last close(2) returns before the kernel sends RELEASE.
  run('sleep 0.5');
  writer.cfs('sync', '--wait');
  await ground.discard(writer);
  run('sync');
}

/**
 * Opens a file and reads its first 4 KiB, in one process: milliseconds.
 * @param {string} file
 */
function firstReadMs(file) {
  const script = `const fs=require('fs');const b=Buffer.alloc(4096);const s=performance.now();
    fs.readSync(fs.openSync(${JSON.stringify(file)},'r'),b,0,4096,0);console.log(performance.now()-s);`;
  return Number(execFileSync(process.execPath, ['-e', script], { encoding: 'utf8', timeout: 300_000 }));
}

/**
 * The first bytes of a file straight after the mount: its name is known, its folder was not listed.
 * @param {string} where
 */
async function readFresh(where) {
  const measure = `first 4 KiB of a large file, straight after the mount, ${where}`;
  await storeCompiledCode();
  for (let round = 0; round < FRESH_ROUNDS; round++) {
    const mine = async () => {
      const fresh = ground.mount(`fresh-${round}`);
      run(`stat ${fresh.directory}/big`);
      results.note(measure, 'ms', OURS, firstReadMs(`${fresh.directory}/big`));
      await ground.discard(fresh);
    };
    const theirs = async () => {
      const fresh = await ground.rclone(`rclone-fresh-${round}`, ['--vfs-cache-mode', 'off']);
      if (fresh === null) return;
      run(`stat ${fresh.directory}/big`);
      results.note(measure, 'ms', 'rclone', firstReadMs(`${fresh.directory}/big`));
      await ground.discard(fresh);
    };
    for (const turn of round % 2 === 0 ? [mine, theirs] : [theirs, mine]) await turn();
  }
  results.gate(measure, 'at most', 1.2, 'rclone');
}

/** Every start but the first one has compiled code (ADR 23), that of a read too if a program has read in the first minute. */
async function storeCompiledCode() {
  if (isCodeStored) return;
  isCodeStored = true;
  const first = ground.mount('first');
  firstReadMs(`${first.directory}/big`);
  run('sleep 65');
  await ground.discard(first);
}

/** A bare GET of 64 KiB at each offset on one connection, as a program with one request at a time sends it: mean milliseconds. */
async function meanOfBareGets(/** @type {number[]} */ offsets) {
  const { url, authorization } = await ground.dataOf('huge');
  const dispatcher = new Agent({ connections: 1, connect: { rejectUnauthorized: false } });
  const get = async (/** @type {number} */ at) => {
    const start = at - (at % GET_BYTES);
    const headers = { authorization: String(authorization), range: `bytes=${start}-${start + GET_BYTES - 1}` };
    const { body } = await request(url, { headers, dispatcher });
    await body.arrayBuffer();
  };
  await get(0);
  const begun = performance.now();
  for (const at of offsets) await get(at);
  const mean = (performance.now() - begun) / offsets.length;
  await dispatcher.close();
  return mean;
}

async function readFirst() {
  for (let round = 0; round < ROUNDS; round++) {
    const reader = ground.mount(`reader-${round}`);
    run(`ls ${reader.directory}; sleep 1`);
    const memoryOf = watchMemory(reader.pid);
    const large = `${reader.directory}/huge`;
    results.note('first byte of a large file', 'ms', OURS, timedReads(large, [0], 1)[0]);
    const before = fetchedBytes(reader);
    results.note('its last 100 bytes', 'ms', OURS, timedReads(large, [HUGE_MIB * 1024 ** 2 - 100], 100)[0]);
    results.note('… bytes fetched for them', 'KiB', OURS, (fetchedBytes(reader) - before) / 1024);
    const offsets = Array.from({ length: RANDOM_READS }, (_, i) => 4096 * (hash(i) % (HUGE_MIB * 256)));
    const random = fetchedBytes(reader);
    const times = timedReads(large, offsets, 4096);
    results.note(
      'random 4 KiB read, mean',
      'ms',
      OURS,
      times.reduce((/** @type {number} */ sum, /** @type {number} */ each) => sum + each, 0) / times.length,
    );
    results.note('… bytes fetched per read', 'KiB', OURS, (fetchedBytes(reader) - random) / 1024 / times.length);
    results.note('random 4 KiB read, mean', 'ms', 'bare GET of 64 KiB', await meanOfBareGets(offsets.slice(0, 50)));
    warmMemory(ground.base, 2 * BIG_MIB);
    const seconds = secondsToRead(`${reader.directory}/big-${round}`);
    results.note('first sequential read', 'MB/s', OURS, rate(BIG_MIB, seconds));
    await memoryOf('reading far away');
    await ground.discard(reader);

    const theirs = await ground.rclone(`rclone-${round}`);
    if (theirs === null) continue;
    run(`ls ${theirs.directory}`);
    warmMemory(ground.base, 2 * BIG_MIB);
    const theirSeconds = secondsToRead(`${theirs.directory}/big-${round}`);
    results.note('first sequential read', 'MB/s', 'rclone', rate(BIG_MIB, theirSeconds));
    await ground.discard(theirs);
  }
  results.gate('first byte of a large file', 'at most', LATENCY_MS + 20);
  results.gate('its last 100 bytes', 'at most', LATENCY_MS + 20);
  results.gate('… bytes fetched for them', 'at most', 256);
  results.gate('random 4 KiB read, mean', 'at most', 1.1, 'bare GET of 64 KiB');
  results.gate('… bytes fetched per read', 'at most', 64);
  results.gate('first sequential read', 'at least', 5, 'rclone');
  results.gate('first sequential read', 'at least', 0.85 * CONNECTIONS * CONNECTION_MB_PER_SECOND);
}

/** Reads from the store after a restart, with an empty page cache: first with verification, then without. */
async function readAgain() {
  for (let round = 0; round < ROUNDS; round++) {
    const reader = ground.mount(`kept-${round}`);
    secondsToRead(`${reader.directory}/big`);
    ground.end(reader);
    const again = ground.mount(`again-${round}`, [], `kept-${round}`);
    run(`ls ${again.directory}`);
    for (const measure of ['read after a restart, first', 'read after a restart, then']) {
      dropPageCache();
      warmMemory(ground.base, 2 * BIG_MIB);
      results.note(measure, 'MB/s', OURS, rate(BIG_MIB, secondsToRead(`${again.directory}/big`)));
      dropPageCache();
      warmMemory(ground.base, 2 * BIG_MIB);
      results.note(measure, 'MB/s', 'ext4', rate(BIG_MIB, secondsToRead(`${ground.base}/big`)));
    }
    await ground.discard(again);
  }
  results.gate('read after a restart, first', 'at least', 0.5, 'ext4');
  results.gate('read after a restart, then', 'at least', 0.8, 'ext4');
}

async function write() {
  const passthrough = ground.passthrough('passthrough');
  const writer = ground.mount('written', ['--settle', '10min', '--drain', '0s']);
  const memoryOf = watchMemory(writer.pid);
  /** @type {[string, (round: number) => string][]} */
  const peers = [
    [OURS, (round) => `${writer.directory}/huge-${round}`],
    ['ext4', () => join(ground.base, 'copy')],
  ];
  if (passthrough !== null) peers.push(['passthrough', () => join(passthrough, 'huge')]);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [peer, target] of peers) {
      warmMemory(ground.base, 1.5 * HUGE_MIB);
      const { seconds } = run(`dd if=${ground.base}/huge of=${target(round)} bs=1M 2>/dev/null`);
      results.note('write in calls of 1 MiB until close', 'MB/s', peer, rate(HUGE_MIB, seconds));
      if (peer !== OURS) run(`rm ${target(round)}`);
    }
  }
  await memoryOf('writing');
  await ground.discard(writer);
  results.gate('write in calls of 1 MiB until close', 'at least', 0.8, 'passthrough');
}

/** The time from a `cp` to the acknowledgement, compared with one PUT of curl. */
async function upload() {
  const writer = ground.mount('writer');
  for (let round = 0; round < ROUNDS; round++) {
    const memoryOf = watchMemory(writer.pid);
    const start = performance.now();
    run(`cp ${ground.base}/big ${writer.directory}/up-${round}; sleep 0.1`);
    writer.cfs('sync', '--wait');
    const seconds = (performance.now() - start) / 1000 - 0.1;
    results.note('until the service holds it', 'MB/s', OURS, rate(BIG_MIB, seconds));
    await memoryOf('uploading far away');
    const { url, authorization } = await ground.emptyFile(`curl-${round}`);
    const curl = run(`curl -sf -H 'Authorization: ${authorization}' -T ${ground.base}/big '${url}'`);
    results.note('until the service holds it', 'MB/s', 'curl -T', rate(BIG_MIB, curl.seconds));
  }
  await ground.discard(writer);
  results.gate('until the service holds it', 'at least', 0.85, 'curl -T');
}

/**
 * stat(2) of known names during one large upload and one large download. First with a default mount, where the kernel caches the names.
 * Then (no gate, and not in the quick run) with a mount whose names the kernel must look up each time, compared with an idle bindfs.
 */
async function busy() {
  const namesIn = (/** @type {string} */ directory) =>
    run(`cd ${directory}; for i in $(seq 0 199); do : > f$i; done; ls > /dev/null`);
  const options = ['--settle', '100ms', '--drain', '0s'];
  const lookBeside = async (
    /** @type {string} */ coming,
    /** @type {string[]} */ flags,
    /** @type {string[]} */ besides,
    /** @type {(read: { p50: number, p99: number }, at: number) => void} */ say,
  ) => {
    const mount = ground.mount('busy', [...options, ...flags]);
    // The second time the files are known, and the process is new.
    if (coming === 'huge') {
      namesIn(mount.directory);
      mount.cfs('sync', '--wait');
    }
    const memoryOf = watchMemory(mount.pid);
    // An uploaded file is in the page cache twice; so is a downloaded one.
    warmMemory(ground.base, 4 * HUGE_MIB);
    const { out } = run(
      `cp ${ground.base}/huge ${mount.directory}/up-${coming} & sleep 0.5; cat ${mount.directory}/${coming} > /dev/null & ` +
        `node ${LOOKS} ${quick ? 3000 : 10_000} 200 ${[mount.directory, ...besides].join(' ')}; kill %2 2>/dev/null; wait %1; true`,
    );
    JSON.parse(out).forEach(say);
    await memoryOf('both at once');
    ground.end(mount);
  };
  await lookBeside('huge', [], [], ({ p50, p99 }) => {
    results.note('stat while bytes go up and down, p50', 'ms', OURS, p50);
    results.note('stat while bytes go up and down, p99', 'ms', OURS, p99);
  });
  results.gate('stat while bytes go up and down, p99', 'at most', 1);
  if (quick) return;
  const bound = ground.bindfs('bound', ['-o', 'entry_timeout=0,attr_timeout=300']);
  if (bound !== null) namesIn(join(ground.base, 'bound-behind'));
  await lookBeside(
    'again',
    ['--entry-timeout', '0'],
    bound === null ? [] : [bound],
    ({ p50, p99 }, /** @type {number} */ at) => {
      const peer = at === 0 ? OURS : 'bindfs';
      results.note('the same, the kernel asks at each look, p50', 'ms', peer, p50);
      results.note('the same, the kernel asks at each look, p99', 'ms', peer, p99);
    },
  );
}

/**
 * Without latency: the cost of our own work. A mount runs for days, but its code is compiled during its first seconds. Each mount therefore
 * reads another file first, and the time of that is a row of its own. The order of the mounts changes with each round, so that none is
 * always the first client of the server. All written data are on the disk before each read.
 */
async function near() {
  const first = 'first sequential read of a fresh mount, no distance';
  const later = 'first sequential read, no distance';
  /** @type {Record<string, string[]>} */
  const rcloneFlags = {
    'rclone, cache off': ['--vfs-cache-mode', 'off', '--buffer-size', '64M'],
    'rclone, cache full': ['--vfs-cache-mode', 'full', '--buffer-size', '64M', '--vfs-read-chunk-size', '64M'],
  };
  /** @type {['other' | 'big', string][]} */
  const files = [
    ['other', first],
    ['big', later],
  ];
  const data = { other: await ground.dataOf('other'), big: await ground.dataOf('big') };
  const secondsOfCurl = (/** @type {'other' | 'big'} */ file) => {
    rmSync(join(ground.base, 'curled'), { force: true });
    const { url, authorization } = data[file];
    return run(`curl -sf -H 'Authorization: ${authorization}' -o ${ground.base}/curled '${url}'`).seconds;
  };
  const readBoth = (/** @type {string} */ peer, /** @type {(file: 'other' | 'big') => number} */ read) => {
    for (const [file, measure] of files) {
      run('sync');
      // The bytes will be in the page cache twice: for the file in the mount, and for the file in the store.
      warmMemory(ground.base, 3 * BIG_MIB);
      results.note(measure, 'MB/s', peer, rate(BIG_MIB, read(file)));
    }
  };
  const ours = async (/** @type {number} */ round) => {
    const reader = ground.mount(`near-${round}`);
    run(`ls ${reader.directory}; sleep 0.3`);
    const memoryOf = watchMemory(reader.pid);
    readBoth(OURS, (/** @type {string} */ file) => secondsToRead(`${reader.directory}/${file}`));
    await memoryOf('reading at full speed');
    await ground.discard(reader);
  };
  const rclone = (/** @type {string} */ peer) => async (/** @type {number} */ round) => {
    const theirs = await ground.rclone(`${peer.replaceAll(/\W/g, '')}-${round}`, rcloneFlags[peer]);
    if (theirs === null) return;
    run(`ls ${theirs.directory}`);
    readBoth(peer, (/** @type {string} */ file) => secondsToRead(`${theirs.directory}/${file}`));
    await ground.discard(theirs);
  };
  const peers = [ours, () => readBoth('curl', secondsOfCurl), ...Object.keys(rcloneFlags).map(rclone)];
  for (const [file] of files) secondsOfCurl(file);
  for (let round = 0; round < ROUNDS; round++)
    for (let turn = 0; turn < peers.length; turn++) await peers[(round + turn) % peers.length](round);
  results.gate(later, 'at least', tls ? 0.85 : 0.7, 'curl');
  for (const peer of Object.keys(rcloneFlags)) results.gate(later, 'at least', 1, peer);
}

/** The parts in order: first without latency, then with the same server at 30 ms. */
const NEAR = { fresh: () => readFresh('no distance'), near, write, again: readAgain };
const DISTANT = { fresh: () => readFresh('30 ms'), read: readFirst, upload, busy };

const ground = await Ground.lay({ tls });
try {
  bytesFile(join(ground.base, 'big'), BIG_MIB);
  bytesFile(join(ground.base, 'huge'), HUGE_MIB);
  // Without latency: with it, this would take most of the run.
  const firstReads = Array.from({ length: ROUNDS }, (_, round) => [`big-${round}`, 'big']);
  const large = quick ? ['huge'] : ['huge', 'again'];
  await fillServer([['other', 'big'], ['big', 'big'], ...firstReads, ...large.map((name) => [name, 'huge'])]);
  await partsOf(NEAR);
  await ground.move(FAR);
  // Fills the page cache again, which the last part dropped: no later part waits for the disk of the server.
  run(`cd ${ground.base} && find server big huge -type f -exec cat {} + > /dev/null`);
  await partsOf(DISTANT);
} finally {
  await ground.clear();
}

/** @param {Record<string, () => Promise<void>>} parts */
async function partsOf(parts) {
  for (const [name, part] of Object.entries(parts)) if (only === null || only === name) await part();
}

for (const { measure } of results.summary().rows)
  if (measure.startsWith('private memory')) results.gate(measure, 'at most', 200);
process.exitCode = results.finish();
