import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Postgres } from '../../../src/server/postgres/postgres.ts';

const START_MS_MAX = 60_000;
/** PostgreSQL refuses root. */
const USER = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

/** The folder of Debian's newest server programs; null without any. */
function programs(): string | null {
  const parent = '/usr/lib/postgresql';
  const versions = existsSync(parent) ? readdirSync(parent).sort((a, b) => Number(b) - Number(a)) : [];
  return (
    versions.map((version) => join(parent, version, 'bin')).find((path) => existsSync(join(path, 'initdb'))) ?? null
  );
}

export function missingPostgres(): string | null {
  if (programs() === null) return 'postgresql';
  try {
    createRequire(import.meta.url).resolve('pg');
    return null;
  } catch {
    return 'the npm package pg';
  }
}

/** A PostgreSQL server in a temporary directory, reached by a socket there: no port. */
export class PostgresServer {
  readonly #directory: string;
  #child: ChildProcess | null = null;
  #databases = 0;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  static async start(): Promise<PostgresServer> {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-pg-'));
    const server = new PostgresServer(directory);
    try {
      if (USER.uid !== undefined) chownSync(directory, USER.uid, USER.gid);
      const initdb = join(programs() as string, 'initdb');
      const data = ['-D', join(directory, 'data'), '--no-sync', '-A', 'trust', '-U', 'cfs', '-E', 'UTF8', '--locale=C'];
      await promisify(execFile)(initdb, data, { ...USER, cwd: directory, timeout: START_MS_MAX });
      await server.#start();
      return server;
    } catch (error) {
      await server.close();
      throw error;
    }
  }

  /** A replica. From then on, each commit waits until the replica has it. */
  async standby(): Promise<PostgresServer> {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-pg-'));
    const standby = new PostgresServer(directory);
    try {
      if (USER.uid !== undefined) chownSync(directory, USER.uid, USER.gid);
      const copy = ['-h', this.#directory, '-U', 'cfs', '-D', join(directory, 'data'), '-R', '-c', 'fast', '--no-sync'];
      await promisify(execFile)(join(programs() as string, 'pg_basebackup'), copy, { ...USER, cwd: directory });
      await standby.#start();
      await this.#run("ALTER SYSTEM SET synchronous_standby_names = '*'", 'SELECT pg_reload_conf()');
      return standby;
    } catch (error) {
      await standby.close();
      throw error;
    }
  }

  /** Makes a replica the server that takes changes. */
  promote(): Promise<void> {
    return this.#run('SELECT pg_promote()');
  }

  /** The URL of a database of the server that this one is a replica of. */
  replicaOf(url: string): string {
    return this.#url(new URL(url.replace('@/', '@x/')).pathname.slice(1));
  }

  /** The URL of a new, empty database. */
  async newDatabase(): Promise<string> {
    this.#databases += 1;
    const name = `cfs${this.#databases}`;
    await this.#run(`CREATE DATABASE ${name}`);
    return this.#url(name);
  }

  /** Stops without a checkpoint, as `pg_ctl stop -m immediate` does: the next start recovers what was committed. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGQUIT');
    await ended;
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.#start();
  }

  async close(): Promise<void> {
    await this.stop();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #run(...statements: readonly string[]): Promise<void> {
    const postgres = await Postgres.open(this.#url('postgres'), { connectionsMax: 1 });
    for (const statement of statements) await postgres.rows(statement);
    await postgres.close();
  }

  #url(database: string): string {
    return `postgres://cfs@/${database}?host=${encodeURIComponent(this.#directory)}`;
  }

  async #start(): Promise<void> {
    const settings = [
      'listen_addresses=',
      'fsync=off',
      `unix_socket_directories=${this.#directory}`,
      'max_connections=200',
    ];
    const options = ['-D', join(this.#directory, 'data'), ...settings.flatMap((setting) => ['-c', setting])];
    const child = spawn(join(programs() as string, 'postgres'), options, {
      ...USER,
      cwd: this.#directory,
      stdio: 'ignore',
    });
    this.#child = child;
    const atExit = (): void => void child.kill('SIGQUIT');
    process.once('exit', atExit);
    child.once('exit', () => process.removeListener('exit', atExit));
    for (const endMs = performance.now() + START_MS_MAX; ; await sleep(100)) {
      const postgres = await Postgres.open(this.#url('postgres'), { connectionsMax: 1 });
      try {
        await postgres.rows('SELECT 1');
        return;
      } catch (error) {
        if (performance.now() > endMs || child.exitCode !== null) throw error;
      } finally {
        await postgres.close();
      }
    }
  }
}
