// A PostgreSQL server of a benchmark, in a temporary directory, reached by a socket there. Debian's settings: every commit is flushed.
import { execFileSync, spawn } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** PostgreSQL refuses root. */
const USER = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
const PARENT = '/usr/lib/postgresql';
/** Of `utime` in /proc/PID/stat (proc(5)); Linux reports 100 everywhere. */
const TICKS_PER_SECOND = 100;

/** The folder of its programs, or undefined. */
export function databasePrograms() {
  const versions = existsSync(PARENT) ? readdirSync(PARENT).sort((a, b) => Number(b) - Number(a)) : [];
  return versions.map((version) => join(PARENT, version, 'bin')).find((path) => existsSync(join(path, 'initdb')));
}

/** @param {string} programs */
export async function startDatabase(programs) {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-bench-pg-'));
  if (USER.uid !== undefined) chownSync(directory, USER.uid, USER.gid);
  const data = join(directory, 'data');
  const options = { ...USER, cwd: directory };
  execFileSync(join(programs, 'initdb'), ['-D', data, '-A', 'trust', '-U', 'cfs', '-E', 'UTF8', '--locale=C'], {
    ...options,
    stdio: 'ignore',
  });
  const settings = ['listen_addresses=', `unix_socket_directories=${directory}`, 'max_connections=50'];
  const server = spawn(join(programs, 'postgres'), ['-D', data, ...settings.flatMap((each) => ['-c', each])], {
    ...options,
    stdio: 'ignore',
  });
  while (!existsSync(join(directory, '.s.PGSQL.5432'))) await sleep(50);
  const connection = ['-h', directory, '-U', 'cfs', '-At', 'postgres', '-c'];
  const ask = (/** @type {string} */ text) =>
    execFileSync(join(programs, 'psql'), [...connection, text], {
      cwd: directory,
      encoding: 'utf8',
      stdio: 'pipe',
    }).trim();
  for (let tries = 0; ; tries++) {
    try {
      ask('SELECT 1');
      break;
    } catch (error) {
      if (tries === 100) throw error;
      await sleep(100);
    }
  }
  const pid = /** @type {number} */ (server.pid);
  return {
    /** @param {string} name @returns {string} the URL of a new database */
    create: (name) => {
      ask(`CREATE DATABASE ${name}`);
      return `postgres://cfs@/${name}?host=${encodeURIComponent(directory)}`;
    },
    /** Seconds of processor time of all its processes, also of those that have ended. */
    cpuSeconds: () => [pid, ...childrenOf(pid)].reduce((sum, each) => sum + cpuOf(each, each === pid), 0),
    /** Statements so far, each a transaction. @param {string} name */
    transactions: (name) => Number(ask(`SELECT xact_commit FROM pg_stat_database WHERE datname = '${name}'`)),
    end: async () => {
      server.kill('SIGQUIT');
      await new Promise((resolve) => server.once('exit', resolve));
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** @param {number} pid */
function childrenOf(pid) {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
}

/**
 * @param {number} pid
 * @param {boolean} withEnded adds the children that have ended
 */
function cpuOf(pid, withEnded) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  // utime, stime, cutime, cstime: fields 14 to 17, of which the third is the first here.
  const ticks = fields.slice(11, withEnded ? 15 : 13).reduce((sum, each) => sum + Number(each), 0);
  return ticks / TICKS_PER_SECOND;
}
