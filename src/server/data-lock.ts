import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { UsageError } from '../base/errors.ts';
import { listening } from './listening.ts';
import { showRunning } from './running-mark.ts';

/** Exit code: another process uses the directory. */
const IN_USE = 5;

/**
 * One server per data directory: two would delete each other's uploads as garbage. There are two locks. The abstract
 * socket is released by the kernel on any process exit and needs no disk, but its name belongs to the network namespace
 * (unix(7)), which containers do not share, and every local user can take it. The mark in the directory is visible to
 * every container that sees the directory, and only its owner can make one. Linux only; elsewhere the port is the only
 * guard.
 *
 * @throws UsageError if another server uses the directory
 */
export async function lockData(dataDirectory: string): Promise<() => Promise<void>> {
  if (process.platform !== 'linux') return async () => {};
  const taken = (cause?: unknown): UsageError =>
    new UsageError(`another server runs on ${dataDirectory}`, IN_USE, cause === undefined ? {} : { cause });
  const name = abstractName(dataDirectory);
  const server = createServer((socket) => socket.destroy());
  let isSquatted = false;
  await listening(server, { path: `\0${name}` }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EADDRINUSE') throw error;
    if (isOfTrustedUser(name, dataDirectory)) throw taken(error);
    isSquatted = true;
  });
  server.unref();
  const letGo = (): Promise<void> =>
    isSquatted ? Promise.resolve() : new Promise((resolve) => void server.close(() => resolve()));
  // If no mark can be written (full disk, no sockets), servers of one network namespace still exclude each other. The
  // database reports other faults of the directory.
  const removeMark = await showRunning(dataDirectory).catch((error: unknown) => {
    if (isSquatted) throw taken(error);
    return async () => {};
  });
  if (removeMark === null) {
    await letGo();
    throw taken();
  }
  return async () => {
    await removeMark();
    await letGo();
  };
}

/** The name of the abstract socket of a directory, without its leading NUL. */
export function abstractName(dataDirectory: string): string {
  return `cfs-serve-${createHash('sha256').update(realpathSync(dataDirectory)).digest('hex').slice(0, 32)}`;
}

/**
 * Whether a process of this user, of root, or of the directory's owner holds an abstract socket. A process of another
 * user proves nothing: every user can take the name. False also for a trusted process that may not be inspected; its
 * mark in the directory (`showRunning`) reveals that server.
 */
function isOfTrustedUser(name: string, directory: string): boolean {
  const trusted = new Set([process.geteuid?.(), 0, statSync(directory).uid]);
  const sockets = readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    // Each NUL is shown as @, also those that fill up the address.
    .filter((line) => / @([\w-]+)@*$/.exec(line)?.[1] === name)
    .map((line) => `socket:[${line.trim().split(/\s+/)[6]}]`);
  return readdirSync('/proc').some((process) => {
    if (!/^\d+$/.test(process)) return false;
    try {
      if (!trusted.has(statSync(`/proc/${process}`).uid)) return false;
      const files = readdirSync(`/proc/${process}/fd`);
      return files.some((file) => sockets.includes(linkOf(`/proc/${process}/fd/${file}`)));
    } catch {
      // The process has ended, or may not be inspected.
      return false;
    }
  });
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}
