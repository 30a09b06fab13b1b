import type { ListenOptions, Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** Number of attempts for an address in use, and milliseconds between them. */
const ATTEMPTS = 10;
const PAUSE_MS = 50;

/**
 * Listens on an address. An address in use is retried for half a second: between fork and exec, a child process holds
 * its parent's sockets, even those that the parent has closed meanwhile.
 *
 * @throws the error of listen(2): EADDRINUSE if the address is still in use
 */
export async function listening(server: Server, where: ListenOptions): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await listenOnce(server, where);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || attempt === ATTEMPTS) throw error;
      await sleep(PAUSE_MS);
    }
  }
}

function listenOnce(server: Server, where: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    const ended = (error?: Error): void => {
      server.off('error', ended);
      server.off('listening', ended);
      if (error === undefined) resolve();
      else reject(error);
    };
    server.on('error', ended);
    server.on('listening', ended);
    server.listen(where);
  });
}
