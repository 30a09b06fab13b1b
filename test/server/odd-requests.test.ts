import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp } from './raw-client.ts';

/** Requests of other people's programs that HTTP allows, or that Node would answer by itself. */

let directory: string;
let server: ReferenceServer;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-requests-'));
  server = await ReferenceServer.open({ dataDirectory: directory });
});
afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** All that comes for a request's head. */
async function answerTo(...lines: readonly string[]): Promise<string> {
  const socket = connect(server.port, '127.0.0.1');
  let said = '';
  socket.on('data', (bytes) => {
    said += bytes.toString();
  });
  socket.write([...lines, 'Connection: close', '', ''].join('\r\n'));
  await once(socket, 'close');
  return said;
}

const CHUNKED = 'Transfer-Encoding: chunked';

test.each<[string, number, string[]]>([
  ['without a Host', 400, ['GET /user HTTP/1.1']],
  ['of HTTP/1.0, which has none', 401, ['GET /user HTTP/1.0']],
  ['with an expectation that nobody knows', 401, ['GET /user HTTP/1.1', 'Host: x', 'Expect: the-unexpected']],
  ['of a method that nobody knows', 405, ['PROPFIND /user HTTP/1.1', 'Host: x']],
  ['for nothing', 404, ['OPTIONS * HTTP/1.1', 'Host: x']],
  ['with two lengths', 400, ['POST /user HTTP/1.1', 'Host: x', 'Content-Length: 1', 'Content-Length: 2']],
  // Two programs could read another end of the body, and take its rest for a request (RFC 9112, 6.3 and 11.2).
  ['with a length and chunks', 400, ['POST /user HTTP/1.1', 'Host: x', 'Content-Length: 5', CHUNKED]],
  ['with two codings', 400, ['POST /user HTTP/1.1', 'Host: x', CHUNKED, 'Transfer-Encoding: identity']],
  ['with a length that is no number', 400, ['POST /user HTTP/1.1', 'Host: x', 'Content-Length: +5']],
  ['with a length beyond all numbers', 400, ['POST /user HTTP/1.1', 'Host: x', `Content-Length: ${'9'.repeat(40)}`]],
  ['with a blank before a colon', 400, ['POST /user HTTP/1.1', 'Host: x', 'Content-Length : 5']],
  ['with a folded header', 400, ['POST /user HTTP/1.1', 'Host: x', 'X: a', ' Content-Length: 5']],
  ['with a NUL in a header', 400, ['POST /user HTTP/1.1', 'Host: x', 'X: a\0b']],
])('a request %s has an answer that any origin may read', async (_what, status, lines) => {
  const answer = await answerTo(...lines);

  expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(answer).toContain('\r\nAccess-Control-Allow-Origin: *\r\n');
});

test.each(['http://x', 'HTTP://x:80', 'https://x'])(
  'a request that names the whole address (%s) is one for its path',
  async (origin) => {
    const { client, folder } = await signUp(server, 'a@example.com');
    const path = folder('2').slice(server.origin.length);
    const ask = (target: string) => answerTo(`GET ${target} HTTP/1.1`, 'Host: x', `Authorization: ${client.token}`);

    expect(await ask(`${origin}${path}/contents?max=1`)).toMatch(/^HTTP\/1\.1 200 .*<collectionContents/s);
    expect(await ask(origin)).toMatch(/^HTTP\/1\.1 404 /);
  },
);

test('what can be read can be asked about: HEAD says what GET would, without its body', async () => {
  const { client, folder } = await signUp(server, 'a@example.com');
  const file = await client.createFilled(folder('2'), 'long', Buffer.alloc(3_000_000));
  const linked = await client.send('PUT', file, { body: '<file><publicLink enabled="true"/></file>' });
  const [link = ''] = /http:[^<]*\/pf\/[^<]*/.exec(linked.text) ?? [];
  const targets: [path: string, headers: Record<string, string>][] = [
    [folder('2'), {}],
    [`${folder('2')}/contents`, {}],
    [`${file}/data`, {}],
    [`${file}/data`, { Range: 'bytes=5-9' }],
    [`${file}/data`, { Range: 'bytes=3000000-' }],
    [link, {}],
    [`${link}?directDownload=true`, {}],
    [`${file}9`, {}],
  ];

  for (const [path, headers] of targets) {
    const got = await client.get(path, headers);
    const asked = await client.send('HEAD', path, { headers });
    const said = ({ 'content-length': length, 'content-range': range, 'content-type': type }: typeof got.headers) => [
      length,
      range,
      type,
    ];
    expect([asked.status, ...said(asked.headers)], path).toEqual([got.status, ...said(got.headers)]);
    expect(asked.bytes.byteLength).toBe(0);
  }
  const { status } = await client.send('HEAD', `${folder('2')}/nothing`);
  expect(status).toBe(404);
  expect((await client.send('HEAD', '/authorization')).status).toBe(405);
});
