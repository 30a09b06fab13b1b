// Loaded into a mount or a server before its program (NODE_OPTIONS=--import): ends the process with SIGKILL at a named step, at its
// n-th occurrence after the process was armed. Nothing in the product knows of it: system calls are counted where Node offers
// them, requests where undici tells of them.
//
// CFS_TEST_KILL_FILE names a file with {"point": "journal-write before", "nth": 3}; SIGUSR2 reads it, in all threads. The points `exception` and
// `heap` end the thread that answers the kernel by itself, immediately: an uncaught exception, or no memory. {"point": "record", "text": …} ends
// each process that is about to write a journal record with the text. It is read at the start, too: successors end as well. With `busy`, the
// main thread is busy from then on. {"point": "recorded", "text": …} ends the process after it wrote such a record, and no successor. From the
// point `unsent` on, notifications to the kernel stay in the queue of the addon. The point `notify` stops the thread that answers the kernel, which makes the file `stopped`. A notifier
// thread then tells the kernel that the pages of `inode` are stale, until it is blocked by a page that a program reads.
//
// CFS_TEST_NEXT_DEATHS names a file with a list of points, which is read at each step. A process ends at the first point of the list, and
// removes it: the next one is its successor's. The points `takeover before` and `takeover after` are those of a successor with `--continuity`, around the
// moment in which it gets the requests that its predecessor left. While a file exists with `.slow` behind that name, the disk is slow.

import diagnostics from 'node:diagnostics_channel';
import fs from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { basename } from 'node:path';
import { promisify } from 'node:util';
import { BroadcastChannel, isMainThread } from 'node:worker_threads';

const killFile = process.env.CFS_TEST_KILL_FILE;
const deathsFile = process.env.CFS_TEST_NEXT_DEATHS;
/** More than the mount waits for the disk before it writes in the pool (src/bytes/write-pace.ts). */
const SLOW_WRITE_MS = 4;
const program = basename(process.argv[1] ?? '');
const isServer = program === 'cfs.js' && process.argv[2] === 'serve' && !process.argv.includes('user');

/** Not armed: no step is this one. */
let armed = { point: '', nth: 0, text: '' };
let seen = 0;

/** @returns {string[]} */
function nextDeaths() {
  return deathsFile !== undefined && fs.existsSync(deathsFile) ? JSON.parse(fs.readFileSync(deathsFile, 'utf8')) : [];
}

/** Whether some step ends the process. */
function isArmed() {
  return armed.point !== '' || nextDeaths().length > 0;
}

function isDiskSlow() {
  return deathsFile !== undefined && fs.existsSync(`${deathsFile}.slow`);
}

function die() {
  process.kill(process.pid, 'SIGKILL');
  // The signal may take a moment to arrive: nothing may happen meanwhile.
  for (;;);
}

/** @returns whether the process ends at this occurrence of the step. Does not end it. */
function isTurn(point) {
  const [next, ...others] = nextDeaths();
  if (next !== point) return point === armed.point && ++seen === armed.nth;
  fs.writeFileSync(`${deathsFile}.next`, JSON.stringify(others));
  fs.renameSync(`${deathsFile}.next`, deathsFile);
  return true;
}

function step(point) {
  if (isTurn(point)) die();
}

/** Replaces a method by one that may end the process before it or when it is done. */
function watch(object, name, pointOf) {
  const original = object[name];
  object[name] = function (...args) {
    if (!isArmed()) return original.apply(this, args);
    const point = pointOf(...args);
    if (point === null) return original.apply(this, args);
    step(`${point} before`);
    const result = original.apply(this, args);
    if (!(result instanceof Promise)) step(`${point} after`);
    else {
      return result.then((value) => {
        step(`${point} after`);
        return value;
      });
    }
    return result;
  };
}

/** Which of the store's files a path or a descriptor is. */
function placeOf(file) {
  let path = file;
  if (typeof file === 'number') {
    try {
      path = fs.readlinkSync(`/proc/self/fd/${file}`);
    } catch {
      return null;
    }
  }
  return /\/journal\//.test(path) ? 'journal' : /\/(drafts|cache)\//.test(path) ? 'content' : null;
}

function watchStore() {
  const write = fs.writeSync;
  fs.writeSync = (fd, bytes, offset, length, position) => {
    const place = isArmed() || isDiskSlow() ? placeOf(fd) : null;
    if (place === null) return write(fd, bytes, offset, length, position);
    if (place === 'content' && isDiskSlow())
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, SLOW_WRITE_MS);
    if (armed.point === 'record' && place === 'journal' && Buffer.from(bytes).includes(armed.text)) die();
    step(`${place}-write before`);
    if (isTurn(`${place}-write torn`)) {
      write(fd, bytes, offset, Math.floor(length / 2), position);
      die();
    }
    const written = write(fd, bytes, offset, length, position);
    if (armed.point === 'recorded' && place === 'journal' && Buffer.from(bytes).includes(armed.text)) die();
    step(`${place}-write after`);
    return written;
  };
  // Where the disk is slow, bytes are written in the pool (docs/adr/0018-held-up-writes.md).
  const writeInPool = promisify(fs.write);
  fs.write[promisify.custom] = async (fd, bytes, offset, length, position) => {
    const place = isArmed() ? placeOf(fd) : null;
    if (place === null) return writeInPool(fd, bytes, offset, length, position);
    step(`${place}-write before`);
    if (isTurn(`${place}-write torn`)) {
      write(fd, bytes, offset, Math.floor(length / 2), position);
      die();
    }
    const result = await writeInPool(fd, bytes, offset, length, position);
    step(`${place}-write after`);
    return result;
  };
  const of = (what) => (file) => {
    const place = placeOf(file);
    return place === null ? null : `${place}-${what}`;
  };
  watch(fs, 'openSync', (path, flags) => (flags === 'w+' ? of('create')(path) : null));
  watch(fs, 'unlinkSync', of('remove'));
  watch(fs, 'renameSync', of('rename'));
  watch(fs, 'ftruncateSync', of('truncate'));
  syncBuiltinESMExports();
}

/** The connection of this thread. */
let connection = null;

/** Sends FUSE_NOTIFY_INVAL_INODE as soon as none waits, and never returns. */
function notify({ inode, stopped }) {
  const message = new DataView(connection.region, connection.scratchStart, 40);
  message.setUint32(0, 40, true); // struct fuse_out_header: length, code, unique
  message.setUint32(4, 2, true);
  message.setBigUint64(8, 0n, true);
  message.setBigUint64(16, BigInt(inode), true); // struct fuse_notify_inval_inode_out: the whole file
  message.setBigUint64(24, 0n, true);
  message.setBigUint64(32, 0n, true);
  fs.writeFileSync(stopped, '');
  for (const sleep = new Int32Array(new SharedArrayBuffer(4)); ; Atomics.wait(sleep, 0, 0, 5))
    if (connection.counts()[3] === 0) connection.notify(connection.scratchStart, 40, 1, 0);
}

/** The addon's `resend` and `inherit`: either is called once by each successor. */
function watchTakeover() {
  const { dlopen } = process;
  process.dlopen = (module, ...words) => {
    dlopen.call(process, module, ...words);
    const { openConnection } = module.exports;
    if (openConnection === undefined) return;
    module.exports.openConnection = (...args) => {
      connection = openConnection(...args);
      if (typeof connection !== 'object') return connection;
      for (const name of ['resend', 'inherit']) watch(connection, name, () => 'takeover');
      const { notify } = connection;
      connection.notify = (...args) => (armed.point === 'unsent' ? 1 : notify(...args));
      return connection;
    };
  };
}

function watchUploads() {
  const points = new WeakMap();
  const nameOf = ({ method, path }) => {
    const target = path.split('?')[0];
    if (method === 'POST' && /^\/folder\//.test(target)) return 'create';
    if (method === 'POST' && /\/version$/.test(target)) return 'begin-version';
    if (method === 'PUT' && /\/data$/.test(target)) return 'data';
    if (method === 'PUT' && /^\/(file|folder)\//.test(target)) return 'place';
    if (method === 'GET' && /\/version/.test(target)) return 'history';
    if (method === 'GET' && /\/contents$/.test(target)) return 'listing';
    return null;
  };
  const on = (channel, what) =>
    diagnostics.subscribe(`undici:${channel}`, ({ request }) => {
      const name = points.get(request);
      if (name != null) step(`${name} ${what}`);
    });
  diagnostics.subscribe('undici:request:create', ({ request }) => points.set(request, nameOf(request)));
  on('client:sendHeaders', 'sent');
  on('request:bodyChunkSent', 'partly sent');
  on('request:headers', 'answered');
  on('request:trailers', 'ended');
}

async function watchServer() {
  const require = createRequire(import.meta.url);
  const { mkdtempSync, rmSync } = fs;
  const promises = require('node:fs/promises');
  for (const name of ['mkdir', 'unlink', 'link', 'truncate']) watch(promises, name, () => `blob-${name}`);
  const scratch = mkdtempSync('/tmp/cfs-kill-points-');
  const handle = await promises.open(`${scratch}/x`, 'w');
  const prototype = Object.getPrototypeOf(handle);
  for (const name of ['writev', 'sync', 'datasync']) watch(prototype, name, () => `blob-${name}`);
  await handle.close();
  const { open } = await import('lmdb');
  const database = open({ path: `${scratch}/x.mdb` });
  let holder = database;
  while (!Object.hasOwn(holder, 'transactionSync')) holder = Object.getPrototypeOf(holder);
  watch(holder, 'transactionSync', () => 'rows');
  await database.close();
  rmSync(scratch, { recursive: true });
  syncBuiltinESMExports();
}

if ((killFile ?? deathsFile) !== undefined && (isServer || program === 'mounting-process.cjs' || !isMainThread)) {
  const threads = new BroadcastChannel('cfs-kill-points');
  threads.unref();
  const arm = (what) => {
    seen = 0;
    armed = what;
    if (isMainThread) {
      while (what.busy === true);
      return;
    }
    if (what.point === 'notify') notify(what);
    if (what.point === 'exception') throw new Error('a test failed this thread');
    if (what.point === 'heap') for (const kept = []; ; kept.push(new Array(1000).fill(kept.length)));
  };
  threads.onmessage = ({ data }) => arm(data);
  if (isMainThread) {
    process.on('SIGUSR2', () => {
      const what = JSON.parse(fs.readFileSync(killFile, 'utf8'));
      threads.postMessage(what);
      arm(what);
    });
  }
  if (killFile !== undefined && fs.existsSync(killFile)) {
    const what = JSON.parse(fs.readFileSync(killFile, 'utf8'));
    if (what.point === 'record') armed = what;
  }
  if (isServer) await watchServer();
  else if (isMainThread) watchUploads();
  else {
    watchStore();
    watchTakeover();
  }
}
