import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { createServer } from 'node:net';
import { UsageError } from '../base/errors.ts';
import { listening } from './listening.ts';

/**
 * One server per data directory: two would collect each other's uploads as garbage. Held as an abstract socket, which the
 * kernel takes back however the process ends, so there is nothing stale to clean up after SIGKILL. Linux only; elsewhere the
 * port that both would want is the only guard.
 *
 * @throws UsageError when another server has the directory
 */
export async function lockData(dataDirectory: string): Promise<() => Promise<void>> {
  if (process.platform !== 'linux') return async () => {};
  const id = createHash('sha256').update(realpathSync(dataDirectory)).digest('hex').slice(0, 32);
  const server = createServer((socket) => socket.destroy());
  await listening(server, { path: `\0cfs-serve-${id}` }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EADDRINUSE') throw error;
    throw new UsageError(`another server runs on ${dataDirectory}`, 1, { cause: error });
  });
  server.unref();
  return () => new Promise((resolve) => void server.close(() => resolve()));
}
