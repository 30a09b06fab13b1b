import { Agent, createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { answerWith, kindOf, type StoreAnswer, StoreFaults } from './store-faults.ts';

/** A proxy before a real S3 store, for the failures that the store never has on request. It changes nothing else. */
export class FaultyProxy {
  readonly faults = new StoreFaults();
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #port: number;

  private constructor(port: number) {
    this.#port = port;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(() => response.destroy());
    });
  }

  /** @param port of the store, on this machine */
  static async start(port: number): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(port);
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    this.#agent.destroy();
  }

  async #answer(request: IncomingMessage, response: Parameters<typeof answerWith>[1]): Promise<void> {
    const url = new URL(request.url ?? '', 'http://store');
    const key = url.pathname.split('/').slice(2).join('/');
    const body = await bytesOf(request);
    const fault = this.faults.next(kindOf(request.method ?? '', key, url.searchParams));
    await answerWith(fault, response, () => this.#forwarded(request, body));
  }

  #forwarded(request: IncomingMessage, body: Buffer): Promise<StoreAnswer> {
    const { method, url, headers } = request;
    // The signature covers the header Host, which stays that of the proxy.
    const options = { host: '127.0.0.1', port: this.#port, method, path: url, headers, agent: this.#agent };
    return new Promise((resolve, reject) => {
      const forwarded = httpRequest(options, (answer) => {
        const { connection: _, 'transfer-encoding': _encoding, ...kept } = answer.headers;
        bytesOf(answer).then((bytes) => resolve({ status: answer.statusCode ?? 0, headers: kept, bytes }), reject);
      });
      forwarded.on('error', reject).end(body);
    });
  }
}

async function bytesOf(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
