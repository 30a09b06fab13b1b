// A server that kills itself, with SIGKILL, at its n-th step that changes anything on the disk. Half of the steps are taken
// before it dies (odd n), half are not (even n). Run by killed.mount.test.ts: node killed-server.mjs DIRECTORY N [OBJECTS]

import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open as openDatabase } from 'lmdb';

const [directory, at, location] = process.argv.slice(2);
const killAt = Number(at);
let steps = 0;
let isCounting = false;

const die = () => process.kill(process.pid, 'SIGKILL');

/** Replaces a method by one that counts, and at its turn dies before it (even) or when it is done (odd). */
function count(object, name) {
  const original = object[name];
  object[name] = function (...args) {
    if (!isCounting) return original.apply(this, args);
    steps += 1;
    const isTurn = steps === Math.ceil(killAt / 2);
    if (isTurn && killAt % 2 === 0) {
      die();
      // The signal may take a moment to arrive: nothing may happen meanwhile.
      for (;;);
    }
    const result = original.apply(this, args);
    if (!isTurn) return result;
    if (!(result instanceof Promise)) {
      die();
      for (;;);
    }
    return result.then(() => {
      die();
      for (;;);
    });
  };
}

const fs = createRequire(import.meta.url)('node:fs/promises');
for (const name of ['mkdir', 'unlink', 'link', 'truncate']) count(fs, name);
syncBuiltinESMExports();
const scratch = mkdtempSync(join(tmpdir(), 'cfs-killed-'));
const handle = await fs.open(join(scratch, 'x'), 'w');
const prototype = Object.getPrototypeOf(handle);
for (const name of ['writev', 'sync', 'datasync', 'truncate']) count(prototype, name);
await handle.close();
const database = openDatabase({ path: join(scratch, 'x.mdb') });
let holder = database;
while (!Object.hasOwn(holder, 'transactionSync')) holder = Object.getPrototypeOf(holder);
count(holder, 'transactionSync');
await database.close();
rmSync(scratch, { recursive: true });

const fromDist = (path) => import(new URL(`../../dist/${path}`, import.meta.url).href);
const { ReferenceServer } = await fromDist('server/reference-server.js');
let objects = null;
if (location !== undefined) {
  const [{ openS3 }, { systemClock }] = [await fromDist('server/s3/open-s3.js'), await fromDist('base/clock.js')];
  const keys = { AWS_ACCESS_KEY_ID: 'key', AWS_SECRET_ACCESS_KEY: 'secret' };
  objects = openS3(location, keys, systemClock);
}
const server = await ReferenceServer.open({ dataDirectory: directory, objects });
isCounting = true;
process.stdout.write(`${server.origin}\n`);
