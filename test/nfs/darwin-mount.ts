import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { vi } from 'vitest';
import { pathsOf } from '../../src/config/paths.ts';
import { accountFileOf, writeAccountFile } from '../../src/mount/account-file.ts';
import { accountStates } from '../../src/mount/running-mounts.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { DarwinGround } from './darwin-ground.ts';

const WAIT_MS_MAX = 60_000;

/** The built program as on macOS, in the background, with an account of its own server. */
export class DarwinMount {
  readonly ground: DarwinGround;
  readonly server: ReferenceServer;
  readonly accountFile: string;

  private constructor(ground: DarwinGround, server: ReferenceServer, accountFile: string) {
    this.ground = ground;
    this.server = server;
    this.accountFile = accountFile;
  }

  /** Nothing is mounted yet. */
  static async prepare(): Promise<DarwinMount> {
    const ground = new DarwinGround();
    const server = await ReferenceServer.start();
    const { url, username, application, accessKeyId, privateAccessKey } = server.account;
    const { refreshToken, user } = await server.reader.session();
    const userId = user.slice(user.lastIndexOf('/') + 1);
    const account = { username, application, accessKeyId, privateAccessKey, refreshToken, origin: url, userId };
    const accountFile = accountFileOf(pathsOf(ground.env), account);
    writeAccountFile(accountFile, account);
    return new DarwinMount(ground, server, accountFile);
  }

  async mount(): ReturnType<DarwinGround['accept']> {
    let outcome: string | null = null;
    const launched = this.ground.run('cfs-mount', this.ground.directory).then(({ code, stderr }) => {
      outcome = `${code} ${stderr}`;
      return code;
    });
    try {
      const accepted = await this.ground.accept(() => outcome, true);
      if ((await launched) !== 0) throw new Error(`cfs-mount: ${outcome}`);
      return accepted;
    } finally {
      await launched;
    }
  }

  /** The process of the mount; null if none answers. */
  async process(): Promise<number | null> {
    const [account] = await accountStates(pathsOf(this.ground.env));
    return account?.status?.pid ?? null;
  }

  /** Kills the process of the mount. @returns its successor */
  async killAndContinue(): Promise<number> {
    const pid = await this.process();
    if (pid === null) throw new Error(`no process serves the mount\n${this.log()}`);
    process.kill(pid, 'SIGKILL');
    return vi.waitUntil(
      async () => {
        const next = await this.process().catch(() => null);
        return next !== null && next !== pid ? next : null;
      },
      { timeout: WAIT_MS_MAX, interval: 100 },
    );
  }

  log(): string {
    const accounts = join(this.ground.folder, 'state/cfs/accounts');
    return readdirSync(accounts)
      .map((name) => readFileSync(join(accounts, name, 'mount.log'), 'utf8').slice(-6_000))
      .join('\n');
  }

  async dispose(): Promise<void> {
    const pid = await this.process();
    if (pid !== null) process.kill(pid, 'SIGKILL');
    await this.server.dispose();
    this.ground.dispose();
  }
}
