import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, test } from 'vitest';
import { RequestBody } from '../../src/server/request-body.ts';
import { until } from './until.ts';

const KIB = 1024;

/**
 * The parser has all of a body before whoever was held back has taken it. A line that ends in between takes with it what Node
 * still holds: what is left is not the body, though the request itself says that it is complete.
 */
test('a body is complete when all of it was handed on, not when all of it had come before the line broke', async () => {
  for (const length of [1100 * KIB, 1250 * KIB, 1300 * KIB + 17, 1500 * KIB]) {
    const server = createServer({ highWaterMark: 256 * KIB });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const line = connect((server.address() as AddressInfo).port, '127.0.0.1');
    line.on('error', () => {});
    line.write(`PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`);
    line.write(Buffer.alloc(length, 'x'));
    const [request] = (await once(server, 'request')) as [IncomingMessage];
    request.on('error', () => {});
    const body = new RequestBody(request);
    await until(() => request.isPaused() || request.complete);
    const closed = once(request.socket, 'close');
    request.socket.destroy();
    await closed;
    await until(() => request.closed);

    let taken = 0;
    for (let chunks = await body.next(); chunks !== null; chunks = await body.next()) {
      for (const chunk of chunks) taken += chunk.byteLength;
    }
    expect({ length, isComplete: body.isComplete }).toEqual({ length, isComplete: taken === length });
    server.close();
  }
});
