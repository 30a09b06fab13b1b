import { randomInt } from 'node:crypto';
import { mkdir, rmdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Below what Linux gives to whoever asks for any port (`ip_local_port_range`). */
const [FIRST, END] = [15_000, 32_000];
const TRIES_MAX = 1_000;

/**
 * A port for a server that comes and goes: nobody else gets it while it is away, neither by asking for any nor by a claim in another
 * test process, which a directory settles.
 */
export class PortClaim {
  readonly port: number;
  readonly #directory: string;

  private constructor(port: number, directory: string) {
    this.port = port;
    this.#directory = directory;
  }

  static async make(): Promise<PortClaim> {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const port = randomInt(FIRST, END);
      const directory = path.join(tmpdir(), `cfs-test-port-${port}`);
      try {
        await mkdir(directory);
        if (await isFree(port)) return new PortClaim(port, directory);
        await rmdir(directory);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
    }
    throw new Error(`no port is left: remove cfs-test-port-* from ${tmpdir()}`);
  }

  async release(): Promise<void> {
    await rmdir(this.#directory).catch(() => {});
  }
}

/** Whether no other program listens there. */
function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
