import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ProtocolError } from '../../src/base/errors.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { encodeCollectionContents } from '../../src/protocol/messages.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { clientOf } from './client.ts';
import { ScriptedServer, xml } from './scripted-server.ts';

/** Listings with a content coding (RFC 9110, 8.4). */

let server: ScriptedServer;
let service: HttpService;
beforeEach(async () => {
  server = await ScriptedServer.start();
  service = clientOf(server.baseUrl);
});
afterEach(async () => {
  await service.close();
  await server.close();
});

const folder = () => server.url('/folder/:sc:1:1') as ResourceUrl;

function listingOf(count: number): string {
  const files = Array.from({ length: count }, (_, i) => ({
    displayName: `file ${i}`,
    ref: server.url(`/file/:sc:1:${i}`),
    size: 1,
  }));
  return encodeCollectionContents({ start: 0, end: count - 1, hasMore: false, collections: [], files });
}

/** A response with these bytes as its body. */
function coded(coding: string, body: Buffer) {
  return {
    act: (socket: import('node:net').Socket) => {
      const head = ['HTTP/1.1 200 OK', 'Content-Type: application/xml', `Content-Encoding: ${coding}`];
      socket.write([...head, `Content-Length: ${body.length}`, '', ''].join('\r\n'));
      socket.write(body);
    },
  };
}

test.each(['gzip', 'GZIP', 'x-gzip'])('a listing asks for gzip, and one that comes as %s is read', async (coding) => {
  server.otherwise = coded(coding, gzipSync(listingOf(300)));

  expect(await service.list(folder())).toHaveLength(300);
  expect(server.requests[0]?.headers['accept-encoding']).toBe('gzip');
});

test('a service that knows no coding is understood', async () => {
  server.otherwise = xml(listingOf(3));

  expect(await service.list(folder())).toHaveLength(3);
});

test('no other request asks for a coding', async () => {
  await service.resource(folder(), 'folder');

  expect(server.requests[0]?.headers['accept-encoding']).toBe('identity');
});

test.each<[string, string, () => Buffer]>([
  ['of another coding', 'br', () => Buffer.from('x')],
  ['that is not gzip', 'gzip', () => Buffer.from(listingOf(3))],
  ['whose gzip ends early', 'gzip', () => gzipSync(listingOf(300)).subarray(0, -20)],
  ['whose gzip has a wrong byte', 'gzip', () => withWrongByte(gzipSync(listingOf(300)))],
])('a listing %s is a ProtocolError', async (_what, coding, body) => {
  server.otherwise = coded(coding, body());

  await expect(service.list(folder())).rejects.toThrow(ProtocolError);
});

test('gzip that expands to more than a listing may have ends at that limit, without all of it in memory', async () => {
  const member = gzipSync(Buffer.alloc(8 * 1024 * 1024, ' '), { level: 1 });
  server.otherwise = coded('gzip', Buffer.concat(Array.from({ length: 200 }, () => member)));
  const before = process.memoryUsage().rss;

  await expect(service.list(folder())).rejects.toThrow(ProtocolError);
  expect(process.memoryUsage().rss - before).toBeLessThan(256 * 1024 * 1024);
});

/** The checksum at the end is of other bytes. */
function withWrongByte(bytes: Buffer): Buffer {
  bytes.writeUInt8(bytes.readUInt8(bytes.length - 8) ^ 1, bytes.length - 8);
  return bytes;
}
