import { randomInt } from 'node:crypto';
import { mkdir, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Below what Linux gives to whoever asks for any port (`ip_local_port_range`), above what services have. */
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
        return new PortClaim(port, directory);
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
