import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import { MountFixture } from './mount-fixture.ts';

/** A mount that is not made yet, with its state on a file system of 64 MiB, and 12 MiB in `old/large` on the service. */
export class SmallDisk {
  readonly mount: MountFixture;
  /** SHA-256 of `old/large`. */
  readonly digest: string;
  readonly #state: string;

  private constructor(mount: MountFixture, digest: string, state: string) {
    this.mount = mount;
    this.digest = digest;
    this.#state = state;
  }

  static async start(flags: readonly string[]): Promise<SmallDisk> {
    const mount = await MountFixture.start({ flags });
    const { stdout } = await mount.run('mkdir old; head -c 12M /dev/urandom > old/large; sha256sum old/large');
    await mount.sync();
    await mount.unmount();
    const state = mount.env().XDG_STATE_HOME as string;
    cpSync(state, `${state}.aside`, { recursive: true });
    expect(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64m,mode=755', 'tmpfs', state]).status).toBe(0);
    // Only the sign-in: nothing is known of the account's tree, nothing is cached.
    cpSync(`${state}.aside`, state, { recursive: true, filter: (from) => !/\/store(\/|$)/.test(from) });
    return new SmallDisk(mount, stdout.split(' ')[0] as string, state);
  }

  get freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.#state);
    return bavail * bsize;
  }

  /** A file of another program. */
  fill(name: string, sizeBytes: number): string {
    const file = path.join(this.#state, name);
    expect(spawnSync('fallocate', ['-l', `${sizeBytes}`, file]).status).toBe(0);
    return file;
  }

  /** A file of another program that takes all the room. */
  fillUp(name: string): string {
    const file = path.join(this.#state, name);
    for (const size of ['1M', '4k'])
      spawnSync('sh', ['-c', `cat /dev/zero | dd of="${file}" bs=${size} oflag=append conv=notrunc`]);
    return file;
  }

  /** The journal's next file, which has its room already, is removed: the store has no reserve. */
  removeSpares(): void {
    for (const spare of this.files('journal').filter((file) => file.endsWith('spare'))) rmSync(spare);
  }

  /** Files of the store below one of its folders. */
  files(folder: 'cache' | 'journal'): readonly string[] {
    const accounts = path.join(this.#state, 'cfs', 'accounts');
    const below = path.join(accounts, readdirSync(accounts)[0] as string, 'store', folder);
    const found = readdirSync(below, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    return found.map(({ parentPath, name }) => path.join(parentPath, name));
  }

  async dispose(): Promise<void> {
    await this.mount.unmount(['--now']).catch(() => {});
    spawnSync('umount', ['-l', this.#state]);
    await this.mount.dispose();
    rmSync(`${this.#state}.aside`, { recursive: true, force: true });
  }
}
