import type { ListenOptions, Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** An address that is taken is tried so often, so many milliseconds apart. */
const ATTEMPTS = 10;
const PAUSE_MS = 50;

/**
 * Listens there. What seems taken is tried again for half a second: a process that was just forked has the sockets of its parent
 * until it becomes another program, also one that its parent has closed meanwhile.
 *
 * @throws what listen(2) says: EADDRINUSE when somebody has it still
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
