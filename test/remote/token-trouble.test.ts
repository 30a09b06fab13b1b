import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import type { HttpService } from '../../src/remote/http-service.ts';
import { failureOf, hadNoEffect } from '../../src/sync/failure.ts';
import { clientOf } from './client.ts';
import { reply, ScriptedServer, xml } from './scripted-server.ts';

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
const body = {
  length: 5,
  chunks: async function* () {
    yield Buffer.from('hello');
  },
};
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

test.each(TROUBLES)('nor that it was deleted (%s)', async (_, trouble) => {
  server.tokens = trouble;
  server.otherwise = reply(204);
  await expect(service.deleteForever(file(), 'file')).rejects.toThrow();
  expect(server.requests).toHaveLength(0);
});

test.each(TROUBLES)('nor that its bytes are refused for good (%s)', async (_, trouble) => {
  server.tokens = trouble;
  const error = await service.putFileData(file(), body, 'text/plain').catch((thrown: unknown) => thrown);
  expect(server.requests).toHaveLength(0);
  expect(failureOf(error).type).not.toBe('park');
  expect(hadNoEffect(error)).toBe(true);
});

test('nor that it has no version', async () => {
  server.tokens = reply(404);
  await expect(service.newestVersion(file())).rejects.toThrow();
});
