import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { afterAll, expect, test } from 'vitest';
import { listening } from '../../src/server/listening.ts';

const warnings: Error[] = [];
const note = (warning: Error): void => void warnings.push(warning);
process.on('warning', note);
afterAll(() => void process.off('warning', note));

test('what is taken for a moment only is waited for', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  const server = createHttpServer();
  let refused = 0;
  server.on('error', () => {
    refused += 1;
    if (refused === 2) other.close();
  });

  await listening(server, { host: '127.0.0.1', port });

  expect(refused).toBeGreaterThanOrEqual(2);
  expect((server.address() as AddressInfo).port).toBe(port);
  server.close();
});

test('what stays taken is said so, and leaves no listener behind', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const server = createHttpServer();
  const before = ['error', 'listening'].map((event) => server.listenerCount(event));

  const { port } = other.address() as AddressInfo;
  await expect(listening(server, { host: '127.0.0.1', port })).rejects.toMatchObject({ code: 'EADDRINUSE' });

  expect(['error', 'listening'].map((event) => server.listenerCount(event))).toEqual(before);
  expect(warnings.filter((warning) => 'emitter' in warning && warning.emitter === server)).toEqual([]);
  other.close();
});
