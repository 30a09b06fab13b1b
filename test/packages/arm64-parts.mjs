// Run by Node for arm64 under qemu-user: the parts of the packaged program that need no kernel interface of their own. Prints one line of
// JSON. `arm64-parts.mjs DIRECTORY`: where the program was unpacked.
import { closeSync, mkdtempSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';

const program = process.argv[2];
const require = createRequire(`${program}/`);
const addon = require('./native-deps/fuse-kernel/prebuilds/linux-arm64/fuse-kernel.node');
const scratch = mkdtempSync(join(tmpdir(), 'cfs-arm64-'));

let sums = 0;
const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, index) => (index * 7919 + (index >> 8)) & 255));
for (const length of [0, 1, 7, 8, 9, 63, 64, 65, 255, 4096, 65_537])
  for (const start of [0, 1, 3, 8]) {
    const part = bytes.subarray(start, start + length);
    if (addon.crc32(part, 0) !== crc32(part)) throw new Error(`crc32 of ${length} bytes from ${start}`);
    if (addon.crc32(part, 0xdeadbeef) !== crc32(part, 0xdeadbeef))
      throw new Error(`continued crc32 of ${length} bytes`);
    sums += 1;
  }

const path = join(scratch, 'file');
writeFileSync(path, bytes);
const fd = openSync(path, 'r+');
const read = Buffer.alloc(100);
const isRead = [100, -11].includes(addon.preadNowait(fd, read, 1000));
const allocated = addon.allocate(fd, 0, 200_000, 0) === 0 && readFileSync(path).length === 200_000;
closeSync(fd);

const { open } = require('lmdb');
const database = open({ path: join(scratch, 'database'), encoding: 'binary' });
await database.put('key', Buffer.from('value'));
const stored = database.get('key').toString();
await database.close();

console.log(
  JSON.stringify({
    architecture: process.arch,
    functions: Object.keys(addon).sort(),
    sums,
    isRead,
    allocated,
    stored,
  }),
);
