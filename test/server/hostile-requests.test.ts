import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ProtocolError } from '../../src/base/errors.ts';
import * as messages from '../../src/protocol/messages.ts';
import { rootName } from '../../src/protocol/xml.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { tellFigures } from '../harness/figures.ts';
import { seedsOf } from '../harness/seeds.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { appAuthorization, signUp, TEST_PASSWORD, type TestUser, tokenAuthRequest } from './raw-client.ts';

/**
 * Random documents and request heads, from right ones by random changes. Every decoder returns or throws ProtocolError;
 * the server answers, goes on serving, and its memory stays bounded. `npm run soak -- hostile` has more seeds.
 */
const SEEDS = seedsOf([1, 77]);
const DOCUMENTS = 400;
const HEADS = 60;
const MEMORY_GROWTH_MAX = 400 * 1024 * 1024;

const directory = mkdtempSync(join(tmpdir(), 'cfs-hostile-requests-'));
let server: ReferenceServer;
let user: TestUser;
let startBytes: number;
/** Of this thread alone: other test files may run in the same process. */
const memoryBytes = (): number => {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};
let [documents, heads] = [0, 0];

beforeAll(async () => {
  // The log of requests is not what is tested.
  server = await ReferenceServer.open({ dataDirectory: directory, requestsKept: 10 });
  user = await signUp(server, 'a@example.com');
  startBytes = memoryBytes();
});

afterAll(async () => {
  tellFigures(`hostile requests: ${documents} documents, ${heads} heads, seeds ${SEEDS.join(' ')}`);
  await server.close();
  rmSync(directory, { recursive: true });
});

const DECODERS = Object.entries(messages)
  .filter(([name, value]) => name.startsWith('decode') && typeof value === 'function')
  .map(([, decode]) => decode as (bytes: Uint8Array) => unknown);
const PARTS = [
  ...[
    '<',
    '>',
    '</',
    '/>',
    '&',
    '&amp;',
    '&#0;',
    '&#x1b;',
    '&#xD800;',
    '<!DOCTYPE a [<!ENTITY b "c">]>',
    '<!--',
    '-->',
  ],
  ...[
    '<![CDATA[',
    ']]>',
    '<?xml version="1.0"?>',
    '"',
    "'",
    '=',
    ' xmlns:a="b"',
    '__proto__',
    'constructor',
    '\0',
    '\ud800',
  ],
  ...[
    '<folder>',
    '</folder>',
    '<displayName>',
    '</displayName>',
    '<a>'.repeat(300),
    ' a="b"'.repeat(300),
    '😀',
    '9'.repeat(400),
  ],
];
const HEAD_PARTS = [
  ...['\r\n', '\n', '\r', '\r\n\r\n', ' ', ':', '\t', '\0', 'Content-Length: 5\r\n', 'Transfer-Encoding: chunked\r\n'],
  ...[
    'Expect: 100-continue\r\n',
    'Host: a\r\n',
    'Range: bytes=0-\r\n',
    'Upgrade: h2c\r\nConnection: Upgrade\r\n',
    '%00',
    '..',
    '//',
  ],
  ...[
    'GET ',
    'PUT ',
    'CONNECT ',
    ' HTTP/1.1',
    'HTTP/9.9',
    '0\r\n\r\n',
    'ffffffffffffffff\r\n',
    'X: '.padEnd(3000, 'y'),
  ],
];

/** `text` after a few random changes: parts added, bytes removed, repeated or replaced. */
function changed(text: string, parts: readonly string[], random: SeededRandom): Buffer {
  let bytes = Buffer.from(text);
  for (let change = 0; change < 1 + random.next() * 4; change += 1) {
    const at = Math.floor(random.next() * (bytes.byteLength + 1));
    const until = Math.min(bytes.byteLength, at + Math.floor(random.next() * 20));
    const [front, middle, back] = [bytes.subarray(0, at), bytes.subarray(at, until), bytes.subarray(until)];
    const part = Buffer.from(random.pick(parts));
    bytes = Buffer.concat(
      random.pick([
        [front, part, middle, back],
        [front, back],
        [front, middle, middle, middle, back],
        [front, Buffer.from(random.bytes(5)), back],
        [front],
      ]),
    );
  }
  return bytes;
}

const rightDocuments = () => [
  '<folder><displayName>name</displayName></folder>',
  `<folder><displayName>name</displayName><parent>${user.folder('9')}</parent></folder>`,
  '<file><displayName>name</displayName><mediaType>text/plain</mediaType><publicLink enabled="true"/></file>',
  `<fileCopy source="${user.folder('2')}"><displayName>name</displayName></fileCopy>`,
  '<syncFolder><displayName>name</displayName></syncFolder>',
  '<workspace><displayName>name</displayName></workspace>',
  appAuthorization({ ...user, password: TEST_PASSWORD }),
  tokenAuthRequest(user, user.refreshToken),
];

test.each(SEEDS)('random documents end in a value or a ProtocolError (SEED=%i)', { timeout: 120_000 }, (seed) => {
  const random = new SeededRandom(seed);
  for (let nth = 0; nth < DOCUMENTS; nth += 1, documents += 1) {
    const bytes = changed(random.pick(rightDocuments()), PARTS, random);
    for (const decode of [rootName, random.pick(DECODERS)]) {
      try {
        decode(bytes);
      } catch (error) {
        expect(error, bytes.toString()).toBeInstanceOf(ProtocolError);
      }
    }
  }
  expect(Object.keys({})).toEqual([]);
  expect(memoryBytes() - startBytes).toBeLessThan(MEMORY_GROWTH_MAX);
});

test.each(SEEDS)('random request heads and bodies harm no server (SEED=%i)', { timeout: 240_000 }, async (seed) => {
  const random = new SeededRandom(seed);
  for (let nth = 0; nth < HEADS; nth += 1, heads += 1) {
    const document = random.pick(rightDocuments());
    const path = random.pick(['/user', new URL(user.folder('2')).pathname, '/authorization', '/nowhere']);
    const method = random.pick(['GET', 'POST', 'PUT', 'HEAD', 'DELETE']);
    // Without DELETE of what the other requests need.
    const target = method === 'DELETE' ? '/nowhere' : path;
    const head =
      `${method} ${target} HTTP/1.1\r\nHost: x\r\nAuthorization: ${user.client.token}\r\n` +
      `Content-Length: ${Buffer.byteLength(document)}\r\n\r\n`;
    await said(Buffer.concat([changed(head, HEAD_PARTS, random), changed(document, PARTS, random)]));
  }
  expect((await user.client.get('/user')).status).toBe(200);
  expect(memoryBytes() - startBytes).toBeLessThan(MEMORY_GROWTH_MAX);
});

/** Sends bytes and ends the connection; resolves when the server has ended it. */
function said(bytes: Buffer): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(server.port, '127.0.0.1', () => socket.end(bytes));
    socket.on('error', () => {});
    socket.on('close', () => resolve());
    socket.resume();
  });
}
