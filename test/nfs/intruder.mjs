// A program of another user that wants to get into an NFS mount: it reads the command lines of all processes for exported paths, asks for the
// root (MNT), uses each handle that it gets (GETATTR), and binds the port whenever it is free. Arguments: a text in the command lines of the mount.
//
// Standard input: `watch` or `ignore` (the command lines), `know PORT PATH` (the mount table shows them to all users). It prints what it got, a
// line each, and at the end of its input `{ attempts, first }`: its attempts, and the roots that it got before the mount command.
import { readdirSync, readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';

const EXPORT = /port=(\d+).*127\.0\.0\.1:(\/cfs-mount-[0-9a-f-]+)/s;
const NFS = 100003;
const MOUNT = 100005;
const REPLY_MS_MAX = 500;
const BOUND_MS = 200;
const EXPORTS_MAX = 3;
const mark = process.argv.at(-1) ?? '';
/** @type {Map<string, { port: number, path: string, handles: Buffer[] }>} */
const exported = new Map();
let isWatching = false;
let isOver = false;
let attempts = 0;
let first = 0;

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const [word, port, path] = line.split(' ');
    isWatching = word === 'watch' || (isWatching && word !== 'ignore');
    if (word === 'know') know(Number(port), path ?? '');
  })
  .on('close', () => {
    isOver = true;
  });

/** @param {number} port @param {string} path */
function know(port, path) {
  if (exported.has(path)) return;
  exported.set(path, { port, path, handles: [] });
  const [oldest = ''] = exported.keys();
  if (exported.size > EXPORTS_MAX) exported.delete(oldest);
}

function readCommandLines() {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, 'latin1');
      const [, port, path] = (words.includes(mark) && EXPORT.exec(words)) || [];
      if (path !== undefined) know(Number(port), path);
    } catch {
      // It has ended.
    }
  }
}

/** @param {number[]} numbers */
function words(...numbers) {
  const bytes = Buffer.alloc(4 * numbers.length);
  for (const [index, value] of numbers.entries()) bytes.writeUInt32BE(value, 4 * index);
  return bytes;
}

/** @param {Buffer} bytes */
function opaque(bytes) {
  return Buffer.concat([words(bytes.byteLength), bytes, Buffer.alloc((4 - (bytes.byteLength % 4)) % 4)]);
}

/**
 * One call as root, by its own claim.
 *
 * @param {number} port @param {number} program @param {number} procedure @param {Buffer} body
 * @returns {Promise<Buffer | null>} the result of an accepted call
 */
function ask(port, program, procedure, body) {
  attempts++;
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const finish = (/** @type {Buffer | null} */ result) => {
      socket.destroy();
      resolve(result);
    };
    let received = Buffer.alloc(0);
    socket.setTimeout(REPLY_MS_MAX, () => finish(null));
    socket.on('error', () => finish(null));
    socket.on('close', () => resolve(null));
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      if (received.byteLength < 4 || received.byteLength < 4 + (received.readUInt32BE(0) & 0x7fff_ffff)) return;
      finish(received.byteLength >= 32 && received.readUInt32BE(24) === 0 ? received.subarray(28) : null);
    });
    const call = Buffer.concat([words(attempts, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0), body]);
    socket.write(Buffer.concat([words(0x8000_0000 + call.byteLength), call]));
  });
}

/** @param {number} port @returns {Promise<void>} */
function bind(port) {
  attempts++;
  return new Promise((resolve) => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => console.log(`a call to port ${port}`));
    });
    server.on('error', () => resolve());
    server.listen(port, '127.0.0.1', () => {
      setTimeout(() => server.close(() => resolve()), BOUND_MS);
    });
  });
}

console.log('ready');
while (!isOver) {
  if (isWatching) readCommandLines();
  for (const { port, path, handles } of [...exported.values()]) {
    const root = await ask(port, MOUNT, 1, opaque(Buffer.from(path)));
    if (root?.readUInt32BE(0) === 0) {
      handles.push(root.subarray(8, 8 + root.readUInt32BE(4)));
      first++;
    }
    for (const handle of handles) {
      const reply = await ask(port, NFS, 1, opaque(handle));
      if (reply?.readUInt32BE(0) === 0) console.log(`the attributes of the root of ${path}`);
    }
    await bind(port);
  }
  await new Promise((resolve) => setImmediate(resolve));
}
console.log(JSON.stringify({ attempts, first }));
process.exit(0);
