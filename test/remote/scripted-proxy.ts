import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import type { ServiceProxy } from '../../src/base/proxy.ts';

/** What a proxy does with a connection of which it has read a whole head. */
export type ProxyAct = (socket: Socket, head: string) => void;

/** A proxy on loopback that does as it is told with each connection: a real one for tunnels, or any wrong one. */
export class ScriptedProxy {
  /** The head of each request that came, with its empty line. */
  readonly heads: string[] = [];
  /** Connections that were accepted. */
  accepted = 0;
  act: ProxyAct;
  readonly proxy: ServiceProxy;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  static async start(act: ProxyAct, credentials: ServiceProxy['credentials'] = null): Promise<ScriptedProxy> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new ScriptedProxy(server, act, credentials);
  }

  constructor(server: Server, act: ProxyAct, credentials: ServiceProxy['credentials']) {
    this.#server = server;
    this.act = act;
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    this.proxy = { address, credentials, source: 'HTTPS_PROXY' };
    server.on('connection', (socket) => this.#accept(socket));
  }

  /** How many connections are open now. */
  get open(): number {
    return this.#sockets.size;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(socket: Socket): void {
    this.accepted++;
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
    socket.on('error', () => {});
    let head = '';
    const read = (chunk: Buffer): void => {
      head += chunk.toString('latin1');
      if (!head.includes('\r\n\r\n')) return;
      socket.off('data', read);
      this.heads.push(head);
      this.act(socket, head);
    };
    socket.on('data', read);
  }
}

/** A tunnel to `origin`, whatever was asked for. */
export function tunnelTo(origin: string): ProxyAct {
  return (socket) => {
    const onward = connect(Number(new URL(origin).port), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      onward.pipe(socket).pipe(onward);
    });
    onward.on('error', () => socket.destroy());
    socket.on('close', () => onward.destroy());
  };
}

/** Takes the connection and says nothing. */
export const SILENT: ProxyAct = () => {};

export function saying(text: string): ProxyAct {
  return (socket) => void socket.write(text);
}
