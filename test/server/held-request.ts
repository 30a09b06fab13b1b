import { connect, type Socket } from 'node:net';
import type { ReferenceServer } from '../../src/server/reference-server.ts';
import type { RawClient } from './raw-client.ts';
import { until } from './until.ts';

/** A request with a body that comes when the test says so: what happens in between needs no luck. */
export class HeldRequest {
  readonly #server: ReferenceServer;
  readonly #socket: Socket;
  #said = '';

  /** Sends the head, and the front of a body of `bodyBytes`; resolves when the server has both. */
  static async begin(
    server: ReferenceServer,
    client: RawClient,
    url: string,
    options: { bodyBytes: number; front: string | Uint8Array; range?: string },
  ): Promise<HeldRequest> {
    const held = new HeldRequest(server);
    const range = options.range === undefined ? '' : `Range: ${options.range}\r\n`;
    const head = `PUT ${new URL(url).pathname} HTTP/1.1\r\nHost: x\r\nAuthorization: ${client.token}\r\n${range}`;
    await held.send(`${head}Content-Length: ${options.bodyBytes}\r\n\r\n`);
    await held.send(options.front);
    return held;
  }

  private constructor(server: ReferenceServer) {
    this.#server = server;
    this.#socket = connect(server.port, '127.0.0.1');
    this.#socket.on('data', (data) => {
      this.#said += data.toString();
    });
    this.#socket.on('error', () => {});
  }

  /** Resolves when the server has the bytes. Nobody else sends meanwhile. */
  async send(bytes: string | Uint8Array): Promise<void> {
    const before = this.#server.bytesArrived;
    this.#socket.write(bytes);
    await until(() => this.#server.bytesArrived >= before + Buffer.byteLength(bytes));
  }

  /** Status of the n-th answer on this line. */
  async status(nth = 1): Promise<number> {
    const answers = () => [...this.#said.matchAll(/HTTP\/1\.1 (\d{3}) /g)];
    await until(() => answers().length >= nth);
    return Number(answers()[nth - 1]?.[1]);
  }

  cut(): void {
    this.#socket.destroy();
  }
}
