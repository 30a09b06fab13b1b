import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { hadNoEffect, pushFailureOf } from '../../src/sync/push-failure.ts';
import { clientOf } from './client.ts';
import { answer, reply, ScriptedServer, xml } from './scripted-server.ts';

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
const file = () => server.url('/file/:sc:1:2') as ResourceUrl;
const version = () => server.url('/file/:sc:1:2/version/3') as VersionUrl;
const body = {
  length: 5,
  chunks: async function* () {
    yield Buffer.from('hello');
  },
};

test.each(['100 Continue', '103 Early Hints'])(
  '%s that nobody asked for is passed over (RFC 9110, 15.2)',
  async (interim) => {
    server.steps = [
      {
        act: (socket) => {
          socket.write(`HTTP/1.1 ${interim}\r\n\r\n`);
          setTimeout(() => socket.write(answer(204, {}, '')), 20);
        },
      },
    ];
    await expect(service.putFileData(file(), body, 'text/plain')).resolves.toBeTypeOf('number');
    expect(server.requests).toHaveLength(1);
  },
);

test('refused redirects with a long page leave no connection behind: what follows is asked', async () => {
  const page = Buffer.alloc(4 * 1024 * 1024, 'x');
  server.otherwise = reply(302, { Location: 'http://login.example/', 'Content-Type': 'text/html' }, page);
  for (let i = 0; i < 8; i++) {
    await expect(service.readVersion(version(), { start: 0, end: 1 }, 1)).rejects.toThrow(/another server/);
  }
  server.otherwise = reply(200, {}, 'y');
  const asked = server.requests.length;
  const answered = await Promise.race([
    service.readVersion(version(), { start: 0, end: 1 }, 1).then(() => 'answered'),
    new Promise((resolve) => setTimeout(() => resolve('hangs'), 4000)),
  ]);
  expect({ answered, asked: server.requests.length - asked }).toEqual({ answered: 'answered', asked: 1 });
});

test('an address with a character that no request can carry is not "offline"', async () => {
  const odd = server.url('/file/:sc:1:語') as ResourceUrl;
  await expect(service.resource(odd, 'file')).resolves.toBeNull(); // 404 of the scripted server: it was asked
});

const FILE = '<file><displayName>a</displayName><size>1</size><presentOnServer>true</presentOnServer></file>';

/** Just the address of tokens does not answer as it should for a moment, as while it is deployed anew: all else is well. */
const TROUBLES = [
  ['404', reply(404)],
  ['405', reply(405)],
  ['a text that is no token', reply(200, { 'Content-Type': 'text/plain' }, 'maintenance')],
] as const;

test.each(TROUBLES)('a token request that is answered with %s says nothing of a file', async (_, trouble) => {
  server.tokens = trouble;
  server.otherwise = xml(FILE);
  await expect(service.resource(file(), 'file')).rejects.toThrow();
  expect(server.requests).toHaveLength(0);
});

test.each(TROUBLES)('an odd response does not count as a deletion (%s)', async (_, trouble) => {
  server.tokens = trouble;
  server.otherwise = reply(204);
  await expect(service.deleteForever(file(), 'file')).rejects.toThrow();
  expect(server.requests).toHaveLength(0);
});

test.each(TROUBLES)('an odd response does not count as a permanent refusal (%s)', async (_, trouble) => {
  server.tokens = trouble;
  const error = await service.putFileData(file(), body, 'text/plain').catch((thrown: unknown) => thrown);
  expect(server.requests).toHaveLength(0);
  expect(pushFailureOf(error).type).not.toBe('park');
  expect(hadNoEffect(error)).toBe(true);
});

test('an odd response does not count as a file without versions', async () => {
  server.tokens = reply(404);
  await expect(service.newestVersion(file())).rejects.toThrow();
});
