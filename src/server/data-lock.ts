import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { createServer } from 'node:net';
import { UsageError } from '../base/errors.ts';
import { listening } from './listening.ts';
import { showRunning } from './running-mark.ts';

/** Exit code: another process uses the directory. */
const IN_USE = 5;

/**
 * One server per data directory: two would delete each other's uploads as garbage. There are two locks. The abstract
 * socket is released by the kernel on any process exit and needs no disk, but its name belongs to the network namespace
 * (unix(7)), which containers do not share. The mark in the directory is visible to every container that sees the
 * directory. Linux only; elsewhere the port is the only guard.
 *
 * @throws UsageError if another server uses the directory
 */
export async function lockData(dataDirectory: string): Promise<() => Promise<void>> {
  if (process.platform !== 'linux') return async () => {};
  const taken = (cause?: unknown): UsageError =>
    new UsageError(`another server runs on ${dataDirectory}`, IN_USE, cause === undefined ? {} : { cause });
  const id = createHash('sha256').update(realpathSync(dataDirectory)).digest('hex').slice(0, 32);
  const server = createServer((socket) => socket.destroy());
  await listening(server, { path: `\0cfs-serve-${id}` }).catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'EADDRINUSE' ? taken(error) : error;
  });
  server.unref();
  const letGo = (): Promise<void> => new Promise((resolve) => void server.close(() => resolve()));
  // If no mark can be written (full disk, no sockets), servers of one network namespace still exclude each other. The
  // database reports other faults of the directory.
  const removeMark = await showRunning(dataDirectory).catch(() => async () => {});
  if (removeMark === null) {
    await letGo();
    throw taken();
  }
  return async () => {
    await removeMark();
    await letGo();
  };
}
