import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { HttpService } from '../../src/remote/http-service.ts';
import { clientOf } from './client.ts';
import { answer, reply, ScriptedServer } from './scripted-server.ts';

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

test('an unasked 100 Continue before the answer of a PUT is passed over (RFC 9110, 15.2)', async () => {
  server.steps = [
    {
      act: (socket) => {
        socket.write('HTTP/1.1 100 Continue\r\n\r\n');
        setTimeout(() => socket.write(answer(204, {}, '')), 20);
      },
    },
  ];
  await expect(service.putFileData(file(), body, 'text/plain')).resolves.toBeTypeOf('number');
  expect(server.requests).toHaveLength(1);
});

test('so is 103 Early Hints', async () => {
  server.steps = [
    {
      act: (socket) => {
        socket.write('HTTP/1.1 103 Early Hints\r\n\r\n');
        setTimeout(() => socket.write(answer(204, {}, '')), 20);
      },
    },
  ];
  await expect(service.putFileData(file(), body, 'text/plain')).resolves.toBeTypeOf('number');
});

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
