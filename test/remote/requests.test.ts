import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ApiError, errorOfRecord, errorToRecord, ProtocolError, TransportError } from '../../src/base/errors.ts';
import type { ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { RequestBody } from '../../src/remote/contract.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { hadNoEffect } from '../../src/sync/push-failure.ts';
import { clientOf, HastyClock } from './client.ts';
import {
  answer,
  cutRequest,
  hang,
  loseAnswer,
  raw,
  reply,
  ScriptedServer,
  type Step,
  until,
  xml,
} from './scripted-server.ts';

/** Each row of the tables in src/remote/http/requests.ts, over a line that fails as scripted. */

const FOLDER = '<folder><displayName>a</displayName><contents>c</contents></folder>';
const FILE = '<file><displayName>a</displayName><size>1</size><presentOnServer>true</presentOnServer></file>';

let server: ScriptedServer;
let clock: HastyClock;
let service: HttpService;

beforeEach(async () => {
  server = await ScriptedServer.start();
  clock = new HastyClock();
  service = clientOf(server.baseUrl, { clock });
});

afterEach(async () => {
  await service.close();
  await server.close();
});

const folder = () => server.url('/folder/:sc:1:1') as ResourceUrl;
const file = () => server.url('/file/:sc:1:2') as ResourceUrl;
const version = () => server.url('/file/:sc:1:2/version/3') as VersionUrl;
const body = (text: string): RequestBody => ({
  length: text.length,
  chunks: async function* () {
    yield Buffer.from(text);
  },
});

/** Every request of the interface, its repetition, and the answer that ends it well. */
const ALWAYS: readonly [name: string, ask: () => Promise<unknown>, good: Step][] = [
  ['GET folder', () => service.resource(folder(), 'folder'), xml(FOLDER)],
  ['GET contents', () => service.listPage(folder(), 0), xml('<collectionContents hasMore="false"/>')],
  ['PUT folder', () => service.relocate(folder(), 'folder', folder(), 'b'), reply(204)],
  ['PUT file', () => service.relocate(file(), 'file', folder(), 'b'), xml(FILE)],
  ['DELETE file', () => service.deleteForever(file(), 'file'), reply(204)],
  ['POST version', () => service.createVersion(file()), reply(201, { Location: '/x' })],
  ['GET data', () => service.readVersion(version(), { start: 0, end: 1 }, 1), reply(200, {}, 'x')],
];

const UNSEEN: readonly [name: string, ask: () => Promise<unknown>, good: Step][] = [
  ['POST folder', () => service.createFolder(folder(), 'n'), reply(201, { Location: '/x' })],
  ['POST file', () => service.createFile(folder(), 'n', 't/t'), reply(201, { Location: '/x' })],
  ['POST fileCopy', () => service.copyFile(file(), folder(), 'n'), reply(201, { Location: '/x' })],
  ['PUT file data', () => service.putFileData(file(), body('x'), 't/t'), reply(204)],
  [
    'PUT version data',
    () => service.putVersionData(version(), 0, body('x')),
    xml('<fileVersion><size>1</size><presentOnServer>true</presentOnServer></fileVersion>'),
  ],
];

describe.each(ALWAYS)('%s may be repeated', (_name, ask, good) => {
  test.each([408, 500, 502, 503, 504, 509, 429])('after a %i', async (status) => {
    server.steps = [reply(status), good];

    await ask();

    expect(server.requests).toHaveLength(2);
  });

  test.each<[string, Step]>([
    ['a lost answer', loseAnswer()],
    ['a reset connection', raw('', 'reset')],
    ['half a head', raw('HTTP/1.1 200 O')],
  ])('after %s', async (_what, bad) => {
    server.steps = [bad, good];

    await ask();

    expect(server.requests).toHaveLength(2);
  });

  test('but not for ever: the fourth failure is told', async () => {
    server.otherwise = reply(503);

    await expect(ask()).rejects.toMatchObject({ name: 'ApiError', status: 503 });
    expect(server.requests).toHaveLength(4);
    expect(clock.waitedMs).toEqual([300, 600, 1200]); // random() is 0.5: three quarters of 400, 800, 1600
  });
});

describe.each(UNSEEN)('%s is never sent twice', (_name, ask, good) => {
  test.each<[string, Step]>([
    ['a lost answer', loseAnswer()],
    ['a cut request', cutRequest],
    ['half a head', raw('HTTP/1.1 200 O')],
  ])('after %s: what happened is unknown', async (_what, bad) => {
    server.steps = [bad, good];

    const failure = await ask().catch((error: unknown) => error);

    expect(failure).toBeInstanceOf(TransportError);
    expect(failure).toMatchObject({ neverSent: false });
    expect(server.requests).toHaveLength(1);
  });

  test.each([500, 502, 503])('after a %i: it need not mean that nothing was done', async (status) => {
    server.steps = [reply(status), good];

    await expect(ask()).rejects.toMatchObject({ name: 'ApiError', status });
    expect(server.requests).toHaveLength(1);
  });

  test('but after a 429, which does', async () => {
    server.steps = [reply(429), good];

    await ask();

    expect(server.requests).toHaveLength(2);
  });

  test('but with a new token after a 401, body and all', async () => {
    server.steps = [reply(401), good];

    await ask();

    expect(server.requests).toHaveLength(2);
    expect(server.requests[1]?.body).toEqual(server.requests[0]?.body);
    expect(server.tokenRequests).toHaveLength(2);
  });
});

describe('a request that never left', () => {
  test('a request that was never sent is repeated whatever its method, and its error reports that', async () => {
    const closed = await ScriptedServer.start();
    const away = clientOf(closed.baseUrl, { clock });
    await closed.close();

    const failure = await away.createFolder(`${closed.baseUrl}/folder/:sc:1:1` as ResourceUrl, 'n').catch((e) => e);

    expect(failure).toMatchObject({ name: 'TransportError', neverSent: true, timedOut: false });
    expect(clock.waitedMs.length).toBeGreaterThanOrEqual(3);
    await away.close();
  });
});

describe('a request whose first attempt may have been carried out', () => {
  test('says so, although the second met a closed port', async () => {
    server.steps = [{ act: () => void server.close() }];

    const failure = await service.moveToTrash(file(), 'file', 'f').catch((e) => e);

    expect(failure).toMatchObject({ name: 'TransportError', neverSent: true, mayHaveActed: true });
    expect(hadNoEffect(failure)).toBe(false);
  });

  test.each([
    ['lost', loseAnswer()],
    ['a 502', reply(502)],
    ['a 408', reply(408)],
  ] as const)('says so, although the second was refused (the first was %s)', async (_, first) => {
    server.steps = [first, reply(403)];

    const failure = await service.moveToTrash(file(), 'file', 'f').catch((e) => e);

    expect(failure).toMatchObject({ name: 'ApiError', status: 403, mayHaveActed: true });
    expect(hadNoEffect(failure)).toBe(false);
    expect(errorOfRecord(errorToRecord(failure))).toMatchObject({ status: 403, mayHaveActed: true });
  });

  test('says the opposite where each attempt was refused before it', async () => {
    server.steps = [reply(429), reply(403)];

    const failure = await service.moveToTrash(file(), 'file', 'f').catch((e) => e);

    expect(failure).toMatchObject({ name: 'ApiError', status: 403, mayHaveActed: false });
    expect(hadNoEffect(failure)).toBe(true);
  });
});

describe('Retry-After', () => {
  test.each([
    ['3', [3000]],
    ['0', [0]],
    ['soon', [300]],
  ])('%s is waited for', async (value, waited) => {
    server.steps = [reply(503, { 'Retry-After': value }), xml(FOLDER)];

    await service.resource(folder(), 'folder');

    expect(clock.waitedMs).toEqual(waited);
  });

  test('a Retry-After date is relative to the clock of the service', async () => {
    const headers = { Date: 'Mon, 02 Jan 2006 15:04:05 GMT', 'Retry-After': 'Mon, 02 Jan 2006 15:04:12 GMT' };
    server.steps = [reply(503, headers), xml(FOLDER)];

    await service.resource(folder(), 'folder');

    expect(clock.waitedMs).toEqual([7000]);
  });

  test('a Retry-After of an hour is returned to the caller', async () => {
    server.steps = [reply(503, { 'Retry-After': '3600' })];

    await expect(service.resource(folder(), 'folder')).rejects.toMatchObject({ status: 503, retryAfterMs: 3_600_000 });
    expect(clock.waitedMs).toEqual([]);
  });
});

test.each([
  ['a name', () => service.relocate(folder(), 'folder', folder(), 'b')],
  ['a document', () => service.resource(folder(), 'folder')],
  ['bytes', () => service.putFileData(folder(), body('x'), 't/t')],
  ['a deletion', () => service.deleteForever(folder(), 'folder')],
  ['a new folder', () => service.createFolder(folder(), 'b')],
])('a page with 200 says nothing of %s: a network that wants a login is no service that acted', async (_what, act) => {
  server.steps = [reply(200, { 'Content-Type': 'text/html; charset=utf-8' }, '<html><p>Log in<br></html>')];

  const failure = await act().catch((error: unknown) => error);

  expect(failure).toBeInstanceOf(TransportError);
  expect(String(failure)).toContain('/folder/:sc:1:1');
  expect(server.requests).toHaveLength(1);
});

test.each([
  ['of no length', reply(201, { Location: '/file/:sc:1:2/version/3', 'Content-Type': 'text/html' })],
  [
    'in no pieces',
    raw(
      'HTTP/1.1 201 Created\r\nLocation: /file/:sc:1:2/version/3\r\nContent-Type: text/html; charset=UTF-8\r\n' +
        'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'stay',
    ),
  ],
])('nothing is no page, even called HTML: %s', async (_what, step) => {
  server.steps = [step];

  expect(await service.createVersion(file())).toBe(server.url('/file/:sc:1:2/version/3'));
  expect(server.requests).toHaveLength(1);
});

test('but bytes that were announced as HTML and did not come may have been a page', async () => {
  server.otherwise = raw('HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 500\r\n\r\n');

  await expect(service.putFileData(file(), body('x'), 't/t')).rejects.toBeInstanceOf(TransportError);
  expect(server.requests).toHaveLength(1);
});

test('a folder that was made and cannot be looked for is no refusal of it', async () => {
  server.steps = [reply(201), reply(429, { 'Retry-After': '3600' })];

  const failure = await service.createFolder(folder(), 'n').catch((error: unknown) => error);

  expect(failure).toMatchObject({ name: 'TransportError', neverSent: false });
  expect(server.requests.map(({ method }) => method)).toEqual(['POST', 'GET']);
});

describe('a document that a connection’s end cuts', () => {
  test.each([
    ['a length', 'Content-Length: 500\r\n'],
    ['pieces', 'Transfer-Encoding: chunked\r\n'],
  ])('is asked for again: %s, and the connection was to end anyway', async (what, header) => {
    const start = what === 'pieces' ? '40\r\n<folder>' : '<folder>';
    const cut = `HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/xml\r\n${header}\r\n${start}`;
    server.steps = [raw(cut), xml(FOLDER)];

    await service.resource(folder(), 'folder');

    expect(server.requests).toHaveLength(2);
  });
});

describe('a redirect', () => {
  test.each([301, 302, 303, 307, 308])('%i of a GET is followed', async (status) => {
    server.steps = [reply(status, { Location: server.url('/folder/:sc:1:9') }), xml(FOLDER)];

    await service.resource(folder(), 'folder');

    expect(server.requests.map(({ path }) => path)).toEqual(['/folder/:sc:1:1', '/folder/:sc:1:9']);
  });

  test.each([
    ['301', [301], true],
    ['308', [308], true],
    ['302, which is for now only', [302], false],
    ['301 after 307', [307, 301], false],
  ])('of a GET tells a new address where it is meant to last (%s)', async (_, statuses, isLasting) => {
    const now = server.url('/folder/:sc:1:9');
    server.steps = [...statuses.map((status) => reply(status, { Location: now })), xml(FOLDER)];

    expect((await service.resource(folder(), 'folder'))?.url).toBe(isLasting ? now : folder());
  });

  test('301 of a PUT that names or moves means that the resource has a new address', async () => {
    server.steps = [reply(301, { Location: server.url('/folder/:sc:1:9') })];

    expect(await service.relocate(folder(), 'folder', folder(), 'b')).toBe(server.url('/folder/:sc:1:9'));
    expect(server.requests).toHaveLength(1);
  });

  test.each([
    ['307, which is for now only', 307, false],
    ['308', 308, true],
  ])(
    'of a PUT that names or moves tells a new address where it is meant to last (%s)',
    async (_, status, isLasting) => {
      const now = server.url('/folder/:sc:1:9');
      server.steps = [reply(status, { Location: now }), reply(204)];

      expect(await service.relocate(folder(), 'folder', folder(), 'b')).toBe(isLasting ? now : folder());
      expect(server.requests.map(({ method, path }) => `${method} ${path}`)).toEqual([
        'PUT /folder/:sc:1:1',
        'PUT /folder/:sc:1:9',
      ]);
    },
  );

  test.each([307, 308])('%i of a PUT sends the same body there', async (status) => {
    server.steps = [reply(status, { Location: '/elsewhere/data' }), reply(204)];

    await service.putFileData(file(), body('bytes'), 't/t');

    expect(server.requests[1]).toMatchObject({ path: '/elsewhere/data', body: Buffer.from('bytes') });
  });

  test.each<[string, number, () => Promise<unknown>]>([
    ['PUT', 302, () => service.relocate(folder(), 'folder', folder(), 'b')],
    ['PUT of bytes', 301, () => service.putFileData(file(), body('bytes'), 't/t')],
    ['PUT of more bytes', 301, () => service.putVersionData(version(), 4, body('bytes'))],
    ['POST', 301, () => service.createFolder(folder(), 'n')],
    ['POST', 303, () => service.createFolder(folder(), 'n')],
    ['DELETE', 301, () => service.deleteForever(file(), 'file')],
    ['GET', 304, () => service.resource(file(), 'file')],
  ])('of a %s with %i is refused', async (_method, status, ask) => {
    server.steps = [reply(status, { Location: '/elsewhere' })];

    await expect(ask()).rejects.toBeInstanceOf(ProtocolError);
    expect(server.requests).toHaveLength(1);
  });

  test('never goes to another server: the token would go with it', async () => {
    const other = await ScriptedServer.start();
    server.steps = [reply(302, { Location: other.url('/folder/:sc:1:1') })];

    await expect(service.resource(folder(), 'folder')).rejects.toThrow(/another server/);
    expect(other.requests).toEqual([]);
    await other.close();
  });

  test('a redirect to another server is an error that names the server', async () => {
    server.otherwise = reply(308, { Location: 'https://www.Cloud.example.com:443/authorization?secret' });

    await expect(service.resource(folder(), 'folder')).rejects.toThrow(
      'redirected to another server, https://www.cloud.example.com: ',
    );
  });

  test('to another server a redirect to another server is not accepted as a new address', async () => {
    server.steps = [reply(301, { Location: 'http://127.0.0.1:1/folder/:sc:1:1' })];

    await expect(service.relocate(folder(), 'folder', folder(), 'b')).rejects.toThrow(/another server/);
  });

  test('in a circle ends', async () => {
    server.otherwise = reply(302, { Location: '/folder/:sc:1:1' });

    await expect(service.resource(folder(), 'folder')).rejects.toThrow(/too many redirects/);
    expect(server.requests).toHaveLength(6);
  });

  test('without a Location is refused', async () => {
    server.steps = [reply(302)];

    await expect(service.resource(folder(), 'folder')).rejects.toBeInstanceOf(ProtocolError);
  });
});

describe('an address on another server', () => {
  test('an address on another server gets no request', async () => {
    const elsewhere = `http://127.0.0.1:1/folder/:sc:1:1` as ResourceUrl;

    await expect(service.resource(elsewhere, 'folder')).rejects.toThrow(/another server/);
  });

  test('an address on another server differs from another spelling of this one', async () => {
    server.otherwise = xml(FOLDER);
    const spelled = folder().replace('http://', 'HTTP://') as ResourceUrl;

    expect(await service.resource(spelled, 'folder')).toMatchObject({ name: 'a' });
  });
});

/** As a listing gives it. */
const MADE = '/file/:sc:1:9';

describe('the address of what was made is that of listings, however Location says it:', () => {
  test.each<[string, (url: string) => string]>([
    ['in the same words', (url) => url],
    ['relative', () => MADE],
    ['relative to this address', () => `../..${MADE}`],
    ['without a scheme', (url) => url.replace('http:', '')],
    ['with another scheme’s letters', (url) => url.replace('http:', 'HTTP:')],
    ['with a name that only this server ignores', (url) => url.replace('//', '//somebody@')],
  ])('%s', async (_, location) => {
    server.steps = [reply(201, { Location: location(server.url(MADE)) })];

    expect(await service.createFile(folder(), 'a', 't/t')).toBe(server.url(MADE));
  });

  test('the address of a new resource has the spelling that the service uses elsewhere', async () => {
    const [spelled, parent] = [server.url(MADE), folder()].map((url) => url.replace('http:', 'HTTP:'));
    server.steps = [reply(201, { Location: server.url(MADE) })];

    expect(await service.createFile(parent as ResourceUrl, 'a', 't/t')).toBe(spelled);
  });

  test('but for one on another server, which is never asked', async () => {
    server.steps = [reply(201, { Location: 'http://127.0.0.1:1/file/:sc:1:9' })];

    expect(await service.createFile(folder(), 'a', 't/t')).toBe('http://127.0.0.1:1/file/:sc:1:9');
  });
});

describe('a refusal', () => {
  test('carries the status and the message of the page', async () => {
    server.steps = [
      reply(
        403,
        { 'Content-Type': 'text/html' },
        '<html><body>\n<h3></h3><h3>Can not move sync folder.</h3></body></html>',
      ),
    ];

    const failure = await service.relocate(folder(), 'folder', folder(), 'b').catch((error: unknown) => error);

    expect(failure).toBeInstanceOf(ApiError);
    expect(failure).toMatchObject({ status: 403, request: 'PUT /folder/:sc:1:1' });
    expect(String(failure)).toContain('Can not move sync folder.');
  });

  test('with an endless page is a refusal all the same', async () => {
    server.steps = [raw(`HTTP/1.1 404 No\r\n\r\n${'x'.repeat(200_000)}`, 'stay')];

    expect(await service.resource(folder(), 'folder')).toBeNull();
  });

  test('before the body was sent is heard', async () => {
    const megabytes = 8;
    server.steps = [{ at: 'head', act: (socket) => void socket.write(answer(413, {}, '')) }];
    const big: RequestBody = {
      length: megabytes * 1024 * 1024,
      chunks: async function* () {
        for (let i = 0; i < megabytes; i++) yield Buffer.alloc(1024 * 1024);
      },
    };

    await expect(service.putFileData(file(), big, 't/t')).rejects.toMatchObject({ status: 413 });
  });
});

describe('a document', () => {
  test.each<[string, Step]>([
    ['nothing', reply(200)],
    ['another document', xml(FILE)],
    ['half a document', xml('<folder><displayName>a')],
  ])('that is %s is a ProtocolError that names the request, and is not asked for again', async (_what, step) => {
    server.steps = [step];

    const failure = await service.resource(folder(), 'folder').catch((error: unknown) => error);

    expect(failure).toBeInstanceOf(ProtocolError);
    expect(String(failure)).toContain('GET /folder/:sc:1:1');
    expect(server.requests).toHaveLength(1);
  });

  test('a truncated document is requested again', async () => {
    const whole = answer(200, { 'Content-Type': 'application/xml' }, FOLDER);
    server.steps = [raw(whole.subarray(0, whole.byteLength - 20)), xml(FOLDER)];

    expect(await service.resource(folder(), 'folder')).toMatchObject({ name: 'a' });
  });

  test('may come in chunks of no length', async () => {
    const chunks = [...FOLDER].map((character) => `1\r\n${character}\r\n`).join('');
    server.steps = [raw(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`, 'stay')];

    expect(await service.resource(folder(), 'folder')).toMatchObject({ name: 'a' });
  });
});

describe('what only the network answers is a TransportError, and is not asked for again:', () => {
  test.each<[string, Step, boolean]>([
    ['407, a proxy that wants a password', reply(407), true],
    ['511, a network that wants a login', reply(511, { 'Content-Type': 'text/html' }, '<html>pay</html>'), true],
    ['bytes of another protocol', raw('SSH-2.0-OpenSSH_9.2\r\n'), false],
  ])('%s', async (_what, step, neverSent) => {
    for (const ask of [
      () => service.resource(folder(), 'folder'),
      () => service.createFolder(folder(), 'n'),
      () => service.putFileData(file(), body('bytes'), 't/t'),
    ]) {
      server.steps = [step];
      const before = server.requests.length;

      const failure = await ask().catch((error: unknown) => error);

      expect(failure).toBeInstanceOf(TransportError);
      expect(failure).toMatchObject({ neverSent });
      expect(server.requests.length - before).toBe(1);
    }
  });
});

const EMPTY: RequestBody = { length: 0, chunks: async function* () {} };

describe('a hanging server', () => {
  test.each<[string, Step]>([
    ['before it answers', hang],
    ['within its answer', raw(answer(200, { 'Content-Length': '500' }, FOLDER), 'stay')],
  ])('%s is given up, and its connection too', async (_when, step) => {
    const impatient = clientOf(server.baseUrl, { clock, deadlines: { answerMs: 150, bodyMs: 150 } });
    server.otherwise = step;

    const failure = await impatient.putVersionData(version(), 0, EMPTY).catch((error: unknown) => error);

    expect(failure).toMatchObject({ name: 'TransportError', timedOut: true, neverSent: false });
    await impatient.close();
    await until(() => server.connections === 0, 'all connections end');
  });
});

test('a document that comes a byte at a time is given up after its deadline, its connection too', async () => {
  const impatient = clientOf(server.baseUrl, { clock, deadlines: { documentMs: 60 } });
  server.otherwise = {
    act: (socket) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n`);
      const drip = setInterval(() => socket.write(' '), 5);
      socket.on('close', () => clearInterval(drip));
    },
  };

  await expect(impatient.resource(folder(), 'folder')).rejects.toMatchObject({
    name: 'TransportError',
    timedOut: true,
  });
  await until(() => !server.isOpen(server.requests[0]?.connection ?? 0), 'its connection ends');
  await impatient.close();
});

describe('cancellation', () => {
  test.each<[string, Step]>([
    ['before the answer', hang],
    ['within the answer', raw(answer(200, { 'Content-Length': '500' }, FOLDER), 'stay')],
  ])('%s frees the connection', async (_when, step) => {
    server.steps = [xml(FOLDER), step];
    const controller = new AbortController();
    await service.resource(folder(), 'folder');
    const asked = service.resource(folder(), 'folder', controller.signal);
    asked.catch(() => {});
    await until(() => server.requests.length === 2, 'the request arrives');
    const busy = server.requests[1]?.connection as number;

    controller.abort(new DOMException('enough', 'AbortError'));

    await expect(asked).rejects.toMatchObject({ name: 'AbortError', message: 'enough' });
    await until(() => !server.isOpen(busy), 'its connection ends');
  });

  test('a cancellation during the body ends the upload', async () => {
    server.steps = [{ at: 'head', act: () => {} }];
    const controller = new AbortController();
    let taken = 0;
    const endless: RequestBody = {
      length: 2 ** 40,
      chunks: async function* () {
        for (;;) {
          taken += 1;
          yield Buffer.alloc(64 * 1024);
        }
      },
    };
    const sent = service.putFileData(file(), endless, 't/t', controller.signal);
    sent.catch(() => {});
    await until(() => server.requests.length === 1 && taken > 1, 'the upload begins');

    controller.abort(new DOMException('enough', 'AbortError'));

    await expect(sent).rejects.toMatchObject({ name: 'AbortError' });
    await until(() => server.connections === 1, 'only the connection that brought the token is left');
  });

  test('while waiting for a connection leaves the others alone', async () => {
    server.otherwise = hang;
    const controller = new AbortController();
    const others = Array.from({ length: 8 }, () => service.resource(folder(), 'folder').catch(() => null));
    await until(() => server.requests.length === 8, 'all connections are taken');
    const waiting = service.resource(folder(), 'folder', controller.signal);
    waiting.catch(() => {});

    controller.abort(new DOMException('enough', 'AbortError'));

    await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
    expect(server.requests).toHaveLength(8);
    await service.close();
    await Promise.all(others);
  });
});

test('every request says who is asking, and with which token', async () => {
  server.steps = [xml(FOLDER)];

  await service.resource(folder(), 'folder');

  expect(server.requests[0]?.headers).toMatchObject({
    'user-agent': 'cfs-mount/0.0.0 (test)',
    authorization: server.url('/authorization/T1'),
    host: new URL(server.baseUrl).host,
  });
  expect(server.tokenRequests[0]?.headers.authorization).toBeUndefined();
  expect(server.tokenRequests[0]?.headers['content-type']).toBe('application/xml; charset=UTF-8');
});

test('an image in another form is asked for as the service wants to hear it', async () => {
  server.otherwise = reply(200, { 'Content-Type': 'image/jpeg' }, 'jpeg');

  const image = await service.account.transcodedImage(file(), {
    widthMax: 640,
    heightMax: 480,
    square: true,
    quarterTurns: 3,
  });
  await service.account.transcodedImage(file(), { widthMax: 1, heightMax: 2 });

  expect((await image.bytes(100)).toString()).toBe('jpeg');
  expect(server.requests.map(({ headers }) => headers.accept)).toEqual([
    'image/jpeg; pxmax=640; pymax=480; sq=(1); r=(3)',
    'image/jpeg; pxmax=1; pymax=2',
  ]);
});

test.each([
  [
    '<image><height>3</height><width>4</width><rotation>90</rotation></image>',
    { widthPixels: 4, heightPixels: 3, rotation: 90 },
  ],
  ['<image><width>4</width></image>', { widthPixels: 4, heightPixels: null, rotation: 0 }],
  ['', null],
])('what a picture is like is told as far as the service says it: %s', async (element, image) => {
  server.otherwise = xml(`<file><displayName>a</displayName><size>1</size>${element}</file>`);

  expect(await service.account.image(file())).toEqual(image);
});

test('connections are reused', async () => {
  server.otherwise = xml(FOLDER);

  for (let i = 0; i < 50; i++) await service.resource(folder(), 'folder');

  // undici opens a second one when a request follows in the same turn in which the one before ended.
  expect(new Set(server.requests.map(({ connection }) => connection)).size).toBeLessThanOrEqual(2);
});
