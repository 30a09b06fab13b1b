import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { createServer } from 'node:net';
import { UsageError } from '../base/errors.ts';
import { listening } from './listening.ts';
import { showRunning } from './running-mark.ts';

/** Exit code: another process has it. */
const IN_USE = 5;

/**
 * One server per data directory: two would collect each other's uploads as garbage. Held twice. As an abstract socket, which the kernel
 * takes back however the process ends and which no disk can refuse; but its name is one of the network namespace (unix(7)), and containers
 * that share a directory have one each. And as a mark in the directory, for everybody who sees that. Linux only; elsewhere the port
 * that both would want is the only guard.
 *
 * @throws UsageError when another server has the directory
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
  // Without room for a mark, or without sockets: servers of one namespace still know of each other. What else is wrong with the
  // directory the database says.
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
