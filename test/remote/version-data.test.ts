import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ProtocolError, TransportError } from '../../src/base/errors.ts';
import type { Extent, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { clientOf } from './client.ts';
import { answer, loseAnswer, raw, reply, ScriptedServer, type Step, until } from './scripted-server.ts';

/** Each row of the table in src/remote/http/version-data.ts. */

const BYTES = Buffer.from('0123456789abcdef');
const ASKED: Extent = { start: 4, end: 10 };

let server: ScriptedServer;
let service: HttpService;

beforeEach(async () => {
  server = await ScriptedServer.start();
  service = clientOf(server.baseUrl, { deadlines: { answerMs: 500, bodyMs: 500 } });
});

afterEach(async () => {
  await service.close();
  await server.close();
});

async function read(extent: Extent = ASKED): Promise<{ extent: Extent; bytes: string }> {
  const url = server.url('/file/:sc:1:2/version/3') as VersionUrl;
  const incoming = await service.readVersion(url, extent, BYTES.byteLength);
  const chunks: Uint8Array[] = [];
  for await (const chunk of incoming.chunks) chunks.push(chunk);
  return { extent: incoming.extent, bytes: Buffer.concat(chunks).toString() };
}

function part(start: number, end: number, headers: Readonly<Record<string, string>> = {}): Step {
  const range = { 'Content-Range': `bytes ${start}-${end - 1}/${BYTES.byteLength}` };
  return reply(206, { ...range, ...headers }, BYTES.subarray(start, end));
}

/** An honest head, and a body that breaks off after `bytes`. */
function brokenPart(start: number, end: number, bytes: number): Step {
  const range = { 'Content-Range': `bytes ${start}-${end - 1}/${BYTES.byteLength}` };
  const whole = answer(206, range, BYTES.subarray(start, end));
  return raw(whole.subarray(0, whole.byteLength - (end - start) + bytes));
}

test('the range that was asked for is given', async () => {
  server.steps = [part(4, 10)];

  expect(await read()).toEqual({ extent: ASKED, bytes: '456789' });
  expect(server.requests[0]).toMatchObject({ path: '/file/:sc:1:2/version/3/data', headers: { range: 'bytes=4-9' } });
});

test('the whole is asked for without a range', async () => {
  server.steps = [reply(200, {}, BYTES)];

  expect(await read({ start: 0, end: BYTES.byteLength })).toMatchObject({ bytes: BYTES.toString() });
  expect(server.requests[0]?.headers.range).toBeUndefined();
});

test('no coding is asked for, and the name of none is none', async () => {
  server.steps = [part(4, 10, { 'Content-Encoding': 'identity' })];

  expect(await read()).toEqual({ extent: ASKED, bytes: '456789' });
  expect(server.requests[0]?.headers['accept-encoding']).toBe('identity');
});

test('nothing is not asked for', async () => {
  expect(await read({ start: 4, end: 4 })).toEqual({ extent: { start: 4, end: 4 }, bytes: '' });
  expect(server.requests).toEqual([]);
});

test('a service that ignores Range gives everything, and it is said so', async () => {
  server.steps = [reply(200, {}, BYTES)];

  expect(await read()).toEqual({ extent: { start: 0, end: BYTES.byteLength }, bytes: BYTES.toString() });
});

test('a total that the service does not know does not matter', async () => {
  server.steps = [part(4, 10, { 'Content-Range': 'bytes 4-9/*' })];

  expect(await read()).toMatchObject({ bytes: '456789' });
});

test('a file that is an HTML page is data like any other, as an attachment', async () => {
  const headers = { 'Content-Type': 'text/html', 'Content-Disposition': "attachment; filename*=UTF-8''a.html" };
  server.steps = [part(4, 10, headers)];

  expect(await read()).toMatchObject({ bytes: '456789' });
});

test('the rest of a partial range is requested', async () => {
  server.steps = [part(4, 7), part(7, 8), part(8, 10)];

  expect(await read()).toEqual({ extent: ASKED, bytes: '456789' });
  expect(server.requests.map(({ headers }) => headers.range)).toEqual(['bytes=4-9', 'bytes=7-9', 'bytes=8-9']);
});

describe('a file that is a page is data like any other, whatever it is called:', () => {
  test.each(['text/html', 'application/xml', 'application/xhtml+xml'])('%s', async (mediaType) => {
    const headers = { 'Content-Type': `${mediaType}; charset=utf-8` };
    server.steps = [part(4, 10, headers), reply(200, headers, BYTES)];

    expect(await read()).toMatchObject({ bytes: '456789' });
    expect(await read({ start: 0, end: BYTES.byteLength })).toMatchObject({ bytes: BYTES.toString() });
  });
});

describe('an answer that does not fit is not believed:', () => {
  test.each<[string, Step]>([
    ['another range', part(5, 11)],
    ['a range of nothing', part(4, 4)],
    ['more bytes than their range', chunked('456789', { 'Content-Range': 'bytes 4-7/16' }, 206)],
    ['a longer range', part(4, 12)],
    ['a range of another file', part(4, 10, { 'Content-Range': 'bytes 4-9/999' })],
    ['a 206 without Content-Range', reply(206, {}, BYTES.subarray(4, 10))],
    ['a Content-Range that is none', part(4, 10, { 'Content-Range': 'bytes */16' })],
    ['several ranges', reply(206, { 'Content-Type': 'multipart/byteranges; boundary=b' }, '--b')],
    ['a whole of another length', reply(200, {}, BYTES.subarray(1))],
    ['a login page', reply(200, { 'Content-Type': 'text/html; charset=utf-8' }, `${BYTES}!`)],
    ['a login page whose length is not said', chunked(BYTES.toString(), { 'Content-Type': 'text/html' })],
    ['an XML document whose length is not said', chunked(BYTES.toString(), { 'Content-Type': 'application/xml' })],
    ['coded bytes', part(4, 10, { 'Content-Encoding': 'gzip' })],
    ['a chunked body that is too long', chunked(`${BYTES.toString()}!`)],
  ])('%s', async (_what, step) => {
    server.steps = [step];

    await expect(read()).rejects.toBeInstanceOf(ProtocolError);
    expect(server.requests).toHaveLength(1);
  });

  test.each([404, 416])('a %i is told as it is', async (status) => {
    server.steps = [reply(status)];

    await expect(read()).rejects.toMatchObject({ name: 'ApiError', status });
  });
});

describe('a body that breaks off', () => {
  test('a truncated body is requested from the break on', async () => {
    server.steps = [brokenPart(4, 10, 2), brokenPart(6, 10, 3), part(9, 10)];

    expect(await read()).toMatchObject({ bytes: '456789' });
    expect(server.requests.map(({ headers }) => headers.range)).toEqual(['bytes=4-9', 'bytes=6-9', 'bytes=9-9']);
  });

  test('a truncated body is completed although the service starts from the beginning each time', async () => {
    const whole = answer(200, {}, BYTES);
    server.steps = [raw(whole.subarray(0, whole.byteLength - 9)), reply(200, {}, BYTES)];

    expect(await read({ start: 0, end: 16 })).toMatchObject({ bytes: BYTES.toString() });
  });

  test('a truncated body is completed from a full response to the request for its rest', async () => {
    server.steps = [brokenPart(4, 10, 2), reply(200, {}, BYTES)];

    expect(await read()).toEqual({ extent: ASKED, bytes: '456789' });
    expect(server.requests).toHaveLength(2);
  });

  test('without a length ends early as seen, and is asked for again', async () => {
    server.steps = [chunked('0123'), part(4, 16)];

    expect(await read({ start: 0, end: 16 })).toMatchObject({ bytes: BYTES.toString() });
  });

  test('a body that breaks only in its terminating line is complete', async () => {
    const pieces = `10\r\n${BYTES}\r\n`;
    server.steps = [raw(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${pieces}`)];

    expect(await read({ start: 0, end: 16 })).toMatchObject({ bytes: BYTES.toString() });
    expect(server.requests).toHaveLength(1);
  });

  test('three times without one more byte is given up', async () => {
    server.steps = [brokenPart(4, 10, 2), brokenPart(6, 10, 0), brokenPart(6, 10, 0), brokenPart(6, 10, 0)];

    await expect(read()).rejects.toBeInstanceOf(TransportError);
    expect(server.requests).toHaveLength(4);
  });

  test('a stalled body is requested again after the deadline', async () => {
    const whole = answer(206, { 'Content-Range': 'bytes 4-9/16' }, BYTES.subarray(4, 10));
    server.steps = [raw(whole.subarray(0, whole.byteLength - 3), 'stay'), part(7, 10)];

    expect(await read()).toMatchObject({ bytes: '456789' });
  });

  test('after a truncated body and a lost response the request is repeated', async () => {
    server.steps = [brokenPart(4, 10, 2), loseAnswer(), part(6, 10)];

    expect(await read()).toMatchObject({ bytes: '456789' });
  });
});

test('a reader that leaves early frees the connection', async () => {
  server.steps = [raw(answer(200, { 'Content-Length': '16' }, BYTES.subarray(0, 4)), 'stay')];
  const incoming = await service.readVersion(server.url('/v') as VersionUrl, { start: 0, end: 16 }, 16);

  for await (const _ of incoming.chunks) break;

  await until(() => !server.isOpen(server.requests[0]?.connection ?? 0), 'the connection ends');
});

test('a slow reader stops the connection instead of filling the memory', async () => {
  const megabytes = 64;
  let taken = 0;
  server.steps = [
    {
      act: (socket) => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${megabytes * 1024 * 1024}\r\n\r\n`);
        const more = () => {
          while (taken < megabytes && !socket.destroyed) {
            taken += 1;
            if (!socket.write(Buffer.alloc(1024 * 1024))) return void socket.once('drain', more);
          }
        };
        more();
      },
    },
  ];
  const size = megabytes * 1024 * 1024;
  const incoming = await service.readVersion(server.url('/v') as VersionUrl, { start: 0, end: size }, size);
  const chunks = incoming.chunks[Symbol.asyncIterator]();
  await chunks.next();

  // As much as the kernel's buffers on both sides hold, and no more, however often the loop turns.
  for (let turn = 0; turn < 2_000; turn++) await new Promise((resolve) => setImmediate(resolve));

  expect(taken).toBeLessThan(megabytes / 2);
  let length = 0;
  for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) length += next.value.byteLength;
  expect(taken).toBe(megabytes);
  expect(length).toBeGreaterThan(size - 1024 * 1024);
});

function chunked(text: string, headers: Readonly<Record<string, string>> = {}, status = 200): Step {
  const chunk = `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`;
  const lines = Object.entries({ ...headers, 'Transfer-Encoding': 'chunked' });
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  return raw(`HTTP/1.1 ${status} OK\r\n${head}\r\n${chunk}`, 'stay');
}

describe('bytes of the newest version', () => {
  const file = () => server.url('/file/:sc:1:2') as ResourceUrl;
  const named = { 'Content-Location': '/file/:sc:1:2/version/3/data' };

  test('are given with the version that Content-Location names', async () => {
    server.steps = [part(4, 10, named)];

    const newest = await service.readNewest(file(), ASKED, BYTES.byteLength);

    expect(newest?.version).toBe(server.url('/file/:sc:1:2/version/3'));
    expect(Buffer.from(newest?.bytes ?? []).toString()).toBe('456789');
    expect(server.requests[0]).toMatchObject({ path: '/file/:sc:1:2/data', headers: { range: 'bytes=4-9' } });
  });

  test.each([
    ['without Content-Location', {}],
    ['with the URL of the request itself', { 'Content-Location': '/file/:sc:1:2/data' }],
    ['with a name that is no data', { 'Content-Location': '/file/:sc:1:2/version/3' }],
  ])('are of an unknown version %s: they are not requested again', async (_title, headers) => {
    server.steps = [part(4, 10, headers)];

    expect(await service.readNewest(file(), ASKED, BYTES.byteLength)).toBeNull();
    expect(await service.readNewest(file(), ASKED, BYTES.byteLength)).toBeNull();
    expect(server.requests).toHaveLength(1);
  });

  test.each([
    ['another range', () => part(5, 11, named)],
    ['a body that breaks off', () => brokenPartNamed()],
  ])('are refused: %s', async (_title, step) => {
    server.steps = [step()];

    await expect(service.readNewest(file(), ASKED, BYTES.byteLength)).rejects.toThrow();
  });

  test.each([
    ['429', () => reply(429)],
    ['503', () => reply(503)],
    ['no answer', loseAnswer],
  ])('are not requested again after %s', async (_title, step) => {
    server.steps = [step(), part(4, 10, named)];

    await expect(service.readNewest(file(), ASKED, BYTES.byteLength)).rejects.toThrow();
    expect(server.requests).toHaveLength(1);
  });

  function brokenPartNamed(): Step {
    const range = { 'Content-Range': `bytes 4-9/${BYTES.byteLength}`, ...named };
    const whole = answer(206, range, BYTES.subarray(4, 10));
    return raw(whole.subarray(0, whole.byteLength - 2));
  }
});
