import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { type XdrReader, XdrWriter } from '../../src/nfs/xdr.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { MemoryFileSystem } from '../kernel/memory-file-system.ts';
import { maybeAttributes, NfsClient } from './nfs-client.ts';

// READDIRPLUS at the limits of a reply: `dircount` bytes of names, `maxcount` bytes in all.

/** Of one to three bytes for each letter, up to 255 bytes. */
const NAMES = Array.from(
  { length: 400 },
  (_, number) => `${number}-${['a', 'ö', '話'][number % 3]?.repeat(number % 80)}`,
);
/** The longest entry with attributes and a handle, and without. */
const PLUS_BYTES_MAX = 24 + 256 + 88 + 8 + 24;
const PLAIN_BYTES_MAX = 24 + 256;

let server: NfsServer;
let client: NfsClient;
let root: Buffer;

beforeEach(async () => {
  const fileSystem = new MemoryFileSystem();
  for (const name of NAMES) fileSystem.plant(ROOT_INODE, name, new Uint8Array(0));
  const deps = { log: silentLogger, clock: new ManualClock() };
  server = await NfsServer.start(fileSystem, { readOnly: false, allowOther: true }, deps);
  client = await NfsClient.connect(server.exported.port);
  root = await client.mnt(server.exported.path);
  server.admit();
});
afterEach(async () => {
  client.close();
  await server.close();
});

interface Piece {
  readonly names: readonly string[];
  readonly cookie: number;
  readonly verifier: number;
  readonly plainBytes: number;
  readonly bytes: number;
  readonly isEnd: boolean;
}

function pieceOf(reply: XdrReader): Piece {
  const bytes = 4 + reply.rest().byteLength;
  maybeAttributes(reply);
  const verifier = reply.u64();
  const names: string[] = [];
  let [cookie, plainBytes] = [0, 0];
  while (reply.bool()) {
    const before = reply.rest().byteLength;
    reply.u64();
    names.push(reply.opaque(255).toString());
    cookie = reply.u64();
    plainBytes += 4 + before - reply.rest().byteLength;
    maybeAttributes(reply);
    if (reply.bool()) reply.opaque(64);
  }
  return { names, cookie, verifier, plainBytes, bytes, isEnd: reply.bool() };
}

test.each([
  ['maxcount', 1_000_000, 1_200],
  ['maxcount', 1_000_000, 8_192],
  ['dircount', 600, 1_000_000],
  ['dircount', 4_096, 1_000_000],
])('each reply is filled up to %s (%i, %i), and no further', async (limit, dircount, maxcount) => {
  const listed: string[] = [];
  for (let [cookie, verifier, isEnd] = [0, 0, false]; !isEnd; ) {
    const args = new XdrWriter().opaque(root).u64(cookie).u64(verifier).u32(dircount).u32(maxcount);
    const piece = pieceOf(await client.nfs('readdirplus', args));
    listed.push(...piece.names);
    ({ cookie, verifier, isEnd } = piece);

    expect(piece.bytes).toBeLessThanOrEqual(maxcount);
    expect(piece.plainBytes).toBeLessThanOrEqual(dircount);
    if (isEnd) break;
    if (limit === 'maxcount') expect(piece.bytes).toBeGreaterThan(maxcount - PLUS_BYTES_MAX);
    else expect(piece.plainBytes).toBeGreaterThan(dircount - PLAIN_BYTES_MAX);
  }
  expect(listed).toEqual(['.', '..', ...NAMES]);
});
