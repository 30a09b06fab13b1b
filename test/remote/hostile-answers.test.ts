import { afterEach, beforeEach, expect, test } from 'vitest';
import { ProtocolError, TransportError } from '../../src/base/errors.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { clientOf } from './client.ts';
import { raw, ScriptedServer, type Step, xml } from './scripted-server.ts';

/** What a hostile or broken service may send instead of an answer: refused, within bounds, and the next request works. */

const MIB = 1024 ** 2;
const USER = '<user><username>a</username><nickname>a</nickname><quota><limit>9</limit><usage>1</usage></quota></user>';

let server: ScriptedServer;
let client: HttpService;

beforeEach(async () => {
  server = await ScriptedServer.start();
  client = clientOf(server.baseUrl, { deadlines: { documentMs: 5_000 } });
});

afterEach(async () => {
  await client.close();
  await server.close();
});

const head = (more: string): string => `HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n${more}`;

/** A head or a body without an end: written for as long as it is read. */
function endless(first: string, piece: string, sent: { bytes: number }): Step {
  return {
    act: (socket) => {
      socket.write(first);
      const more = (): void => {
        while (!socket.destroyed && sent.bytes < 64 * MIB) {
          sent.bytes += piece.length;
          if (!socket.write(piece)) return void socket.once('drain', more);
        }
      };
      more();
    },
  };
}

async function failureOfUser(): Promise<unknown> {
  return client.user(AbortSignal.timeout(10_000)).then(
    () => null,
    (error: unknown) => error,
  );
}

test.each([
  ['a megabyte of headers', raw(head(`X-Flood: ${'x'.repeat(MIB)}\r\n\r\n`))],
  ['a hundred thousand headers', raw(head(`${'X-Flood: x\r\n'.repeat(100_000)}\r\n`))],
  [
    'entities that grow',
    xml(`<!DOCTYPE user [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><user>&b;</user>`),
  ],
  ['an entity from a file', xml('<!DOCTYPE user SYSTEM "file:///etc/passwd"><user/>')],
  ['elements a hundred thousand deep', xml('<a>'.repeat(100_000))],
  ['a name without an end', xml(`<${'a'.repeat(2 * MIB)}`)],
  ['something that is not XML', xml('\0\0\0\0')],
] as const)('%s', async (_what, step) => {
  server.otherwise = step;

  const failure = await failureOfUser();

  expect(failure instanceof ProtocolError || failure instanceof TransportError, String(failure)).toBe(true);
});

test.each([
  ['headers', head(''), `X-Flood: ${'x'.repeat(1000)}\r\n`],
  ['a document', head('Transfer-Encoding: chunked\r\n\r\n10000\r\n<user><username>'), 'x'.repeat(65_536)],
] as const)('%s without an end: given up long before memory is short', async (_what, first, piece) => {
  const sent = { bytes: 0 };
  server.otherwise = endless(first, piece, sent);

  expect(await failureOfUser()).not.toBeNull();
  // What is on its way in the buffers of both sides is more than what was taken.
  expect(sent.bytes).toBeLessThan(32 * MIB);
});

test('the token goes to no other origin, whatever an answer says', async () => {
  const other = await ScriptedServer.start();
  try {
    server.otherwise = raw(`HTTP/1.1 301 Moved\r\nLocation: ${other.baseUrl}/user\r\nContent-Length: 0\r\n\r\n`);
    expect(await failureOfUser()).not.toBeNull();
    server.otherwise = xml(
      USER.replace('</user>', `<magicBriefcase>${other.baseUrl}/folder/1</magicBriefcase></user>`),
    );
    await failureOfUser();

    expect([...other.requests, ...other.tokenRequests]).toEqual([]);
  } finally {
    await other.close();
  }
});
