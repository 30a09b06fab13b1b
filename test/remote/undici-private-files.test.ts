import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import undici from 'undici';
import { expect, test } from 'vitest';
import { commonJs } from '../../src/base/common-js.ts';
import { filesBelow, importsOf } from '../imports.ts';

/**
 * The files of undici that its interface does not promise (ADR 30). An update of undici may move them or change what they
 * hold; one of these tests then names the loss. `paused-answer.test.ts` shows the behaviour that depends on them.
 */
const PRIVATE_FILES = {
  'undici/lib/dispatcher/client.js': 'src/remote/http/connection-pool.ts',
  'undici/lib/core/symbols.js': 'src/remote/http/paused-parser.ts',
};

test('src imports two private files of undici, each in one place', () => {
  const imports = filesBelow('src', ['.ts']).flatMap((file) => importsOf(file));
  const found = imports.filter(({ specifier }) => specifier.startsWith('undici/'));

  expect(Object.fromEntries(found.map(({ file, specifier }) => [specifier, file]))).toEqual(PRIVATE_FILES);
  expect(found).toHaveLength(2);
});

test('the private client.js is the Client that undici exports', () => {
  expect(commonJs('undici/lib/dispatcher/client.js')).toBe(undici.Client);
});

test('a connection has its parser under the symbol kParser, with the members that the workaround uses', async () => {
  const { kParser } = commonJs('undici/lib/core/symbols.js') as { readonly kParser: symbol };
  const server: Server = createServer((_request, response) => response.end('answer'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = new undici.Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const sockets: Socket[] = [];
  const connected = (message: unknown): void => void sockets.push((message as { readonly socket: Socket }).socket);
  subscribe('undici:client:connected', connected);
  try {
    const { body } = await client.request({ path: '/', method: 'GET' });
    const [socket] = sockets;
    const parser = (socket as unknown as Record<symbol, Record<string, unknown>>)[kParser];
    expect(await body.text()).toBe('answer');
    expect(parser).toMatchObject({
      llhttp: { llhttp_resume: expect.any(Function) },
      ptr: expect.any(Number),
      paused: expect.any(Boolean),
      shouldKeepAlive: expect.any(Boolean),
      resume: expect.any(Function),
      onHeadersComplete: expect.any(Function),
    });
  } finally {
    unsubscribe('undici:client:connected', connected);
    await client.close();
    await new Promise((resolve) => server.close(resolve));
  }
});
