import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { listening } from './listening.ts';

/** A metric and its samples. */
export interface Metric {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge';
  /** Value by labels, such as `{status="200"}`; the empty text for none. */
  readonly samples: ReadonlyMap<string, number>;
}

/**
 * `/healthz` and `/metrics` for the operator, on an address of their own: without sign-in, so by default on loopback.
 * They contain no names and no addresses of users.
 */
export class AdminServer {
  readonly origin: string;
  readonly #http: Server;

  /**
   * @param source.isHealthy whether the data can be read
   * @throws UsageError or the error of listen(2)
   */
  static async open(
    where: { readonly host?: string; readonly port?: number },
    source: { readonly isHealthy: () => boolean | Promise<boolean>; readonly metrics: () => readonly Metric[] },
  ): Promise<AdminServer> {
    const http = createServer(
      { requestTimeout: 5000, headersTimeout: 5000, keepAliveTimeout: 5000 },
      (request, response) => {
        if (request.method !== 'GET' && request.method !== 'HEAD') return send(response, 405, 'Method not allowed\n');
        if (request.url === '/metrics') return send(response, 200, prometheusText(source.metrics()));
        if (request.url !== '/healthz') return send(response, 404, 'Not found\n');
        void health(source.isHealthy, response);
      },
    );
    http.maxConnections = CONNECTIONS_MAX;
    const host = where.host ?? '127.0.0.1';
    await listening(http, { host, port: where.port ?? 0 });
    return new AdminServer(http, host);
  }

  private constructor(http: Server, host: string) {
    this.#http = http;
    const shownHost = host.includes(':') ? `[${host}]` : host;
    this.origin = `http://${shownHost}:${(http.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => void this.#http.close(resolve));
    this.#http.closeAllConnections();
    await closed;
  }
}

const CONNECTIONS_MAX = 32;

async function health(isHealthy: () => boolean | Promise<boolean>, response: ServerResponse): Promise<void> {
  if (await isHealthy()) send(response, 200, 'ok\n');
  else send(response, 503, 'the data cannot be read\n');
}

function send(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'Content-Type': 'text/plain; version=0.0.4; charset=utf-8' }).end(text);
}

/** The text format of Prometheus, version 0.0.4. */
function prometheusText(metrics: readonly Metric[]): string {
  return metrics
    .map(({ name, help, type, samples }) => {
      const lines = [...samples].map(([labels, value]) => `${name}${labels} ${value}\n`);
      return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
    })
    .join('');
}
