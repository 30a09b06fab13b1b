import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Postgres } from '../../../src/server/postgres/postgres.ts';

const START_MS_MAX = 60_000;
const PORT = 6432;
/** Fewer than a server's own connections, so that each of these serves several of them in turn. */
const CONNECTIONS = 3;
/** PgBouncer refuses root. */
const USER = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

/** PgBouncer in transaction mode: each transaction of a client may meet another connection to the database. */
export class Pooler {
  readonly #directory: string;
  #child: ChildProcess | null = null;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** @param sockets the directory with the socket of PostgreSQL */
  static async start(sockets: string, database: string): Promise<Pooler> {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-pooler-'));
    const pooler = new Pooler(directory);
    try {
      await pooler.#start(sockets, database);
      return pooler;
    } catch (error) {
      await pooler.close();
      throw error;
    }
  }

  /** The URL of a database through the pooler. */
  url(database: string): string {
    return `postgres://cfs@/${database}?host=${encodeURIComponent(this.#directory)}&port=${PORT}`;
  }

  async close(): Promise<void> {
    const child = this.#child;
    if (child !== null && child.exitCode === null && child.signalCode === null) {
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await ended;
    }
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #start(sockets: string, database: string): Promise<void> {
    const config = join(this.#directory, 'pgbouncer.ini');
    writeFileSync(
      config,
      `[databases]
* = host=${sockets} user=cfs
[pgbouncer]
pool_mode = transaction
default_pool_size = ${CONNECTIONS}
auth_type = any
listen_port = ${PORT}
unix_socket_dir = ${this.#directory}
`,
    );
    if (USER.uid !== undefined) for (const path of [this.#directory, config]) chownSync(path, USER.uid, USER.gid);
    const child = spawn('pgbouncer', ['-q', config], { ...USER, cwd: this.#directory, stdio: 'ignore' });
    this.#child = child;
    const atExit = (): void => void child.kill('SIGKILL');
    process.once('exit', atExit);
    child.once('exit', () => process.removeListener('exit', atExit));
    for (const endMs = performance.now() + START_MS_MAX; ; await sleep(100)) {
      const postgres = await Postgres.open(this.url(database), { connectionsMax: 1 });
      try {
        if (await postgres.answers()) return;
        if (performance.now() > endMs || child.exitCode !== null) throw new Error('pgbouncer does not answer');
      } finally {
        await postgres.close();
      }
    }
  }
}
