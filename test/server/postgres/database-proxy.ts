import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The name of PostgreSQL's socket in its directory. */
const SOCKET = '.s.PGSQL.5432';

/** A proxy before a PostgreSQL server, which loses one request or one answer on demand. It changes nothing else. */
export class DatabaseProxy {
  readonly #directory = mkdtempSync(join(tmpdir(), 'cfs-pg-proxy-'));
  readonly #server: Server;
  readonly #lines = new Set<Socket>();
  #target: string;
  #armed: { readonly text: string; readonly loses: 'request' | 'answer' } | null = null;

  private constructor(target: string) {
    this.#target = target;
    this.#server = createServer((client) => this.#carry(client, connect(this.#target)));
  }

  /** @param url of a database, reached by a socket */
  static async start(url: string): Promise<{ readonly proxy: DatabaseProxy; readonly url: string }> {
    const proxy = new DatabaseProxy(socketOf(url));
    proxy.#server.listen(join(proxy.#directory, SOCKET));
    await once(proxy.#server, 'listening');
    return { proxy, url: url.replace(/host=[^&]*/, `host=${encodeURIComponent(proxy.#directory)}`) };
  }

  /** New connections lead to the database server of this URL, as an address does that moves to a replica. */
  moveTo(url: string): void {
    this.#target = socketOf(url);
  }

  /** Statements that the database has answered. */
  statements = 0;

  /** Those that contain `counted`. */
  counted = { text: '', statements: 0 };

  /** While true, nothing passes, and no connection ends: a database that is gone without a word. */
  isSilent = false;

  /** Whether the loss that was ordered last has happened. */
  get hasLost(): boolean {
    return this.#armed === null;
  }

  /** The next statement with that text: it does not arrive, or it is committed and its answer does not arrive. */
  lose(loses: 'request' | 'answer', text: string): void {
    this.#armed = { loses, text };
  }

  async close(): Promise<void> {
    for (const line of this.#lines) line.destroy();
    this.#server.close();
    await once(this.#server, 'close');
    rmSync(this.#directory, { recursive: true });
  }

  #carry(client: Socket, database: Socket): void {
    let isLosing = false;
    const end = (): void => {
      client.destroy();
      database.destroy();
    };
    for (const line of [client, database]) {
      this.#lines.add(line);
      line.on('error', end).on('close', () => {
        this.#lines.delete(line);
        end();
      });
    }
    client.on('data', (chunk) => {
      if (this.isSilent) return;
      if (chunk.includes(this.counted.text)) this.counted.statements += 1;
      if (this.#armed !== null && chunk.includes(this.#armed.text)) {
        isLosing = true;
        const { loses } = this.#armed;
        this.#armed = null;
        if (loses === 'request') return end();
      }
      database.write(chunk);
    });
    database.on('data', (chunk) => {
      for (let at = chunk.indexOf(READY); at !== -1; at = chunk.indexOf(READY, at + 1)) this.statements += 1;
      if (!isLosing) client.write(chunk);
      else if (chunk.subarray(-READY.byteLength).equals(READY)) end();
    });
  }
}

function socketOf(url: string): string {
  return join(new URL(url.replace('@/', '@x/')).searchParams.get('host') as string, SOCKET);
}

/** ReadyForQuery outside of a transaction: what the statement did is committed. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);
