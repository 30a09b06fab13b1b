import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { vi } from 'vitest';
import { NOT_FOR_PROGRAMS, runCommand } from '../harness/command.ts';
import { NfsClient } from './nfs-client.ts';

const DIST = process.env.CFS_TEST_DIST ?? new URL('../../dist/cli/', import.meta.url).pathname;
const MODULE = new URL('as-darwin.mjs', import.meta.url).pathname;
const START_MS_MAX = 60_000;
const COMMANDS = {
  mount_nfs:
    'printf "%s\\n" "$@" > $CFS_TEST_DARWIN/words.new && mv $CFS_TEST_DARWIN/words.new $CFS_TEST_DARWIN/words\nuntil [ -e $CFS_TEST_DARWIN/table ]; do [ ! -e $CFS_TEST_DARWIN/refused ] || exit 1; sleep 0.05; done',
  mount: 'cat $CFS_TEST_DARWIN/table 2> /dev/null',
  umount: 'rm -f $CFS_TEST_DARWIN/table $CFS_TEST_DARWIN/dead; echo "$@" >> $CFS_TEST_DARWIN/unmounted',
  fusermount3: 'echo "$0 $@" >> $CFS_TEST_DARWIN/wrong; exit 1',
  diskutil: 'echo "$0 $@" >> $CFS_TEST_DARWIN/wrong; exit 1',
};

/** Another program asked for the root before the mount command: that fails, as it does for a kernel. */
export class RootTaken extends Error {}

/**
 * The ground for the built program as on macOS: `as-darwin.mjs` hides what macOS does not have. The test is the kernel: the false mount_nfs waits
 * until it has taken the root's handle, and writes the mount table.
 */
export class DarwinGround {
  readonly folder: string;
  readonly directory: string;

  constructor() {
    this.folder = realpathSync(mkdtempSync(join(tmpdir(), 'cfs-darwin-')));
    this.directory = join(this.folder, 'Cloud');
    for (const name of ['Cloud', 'state', 'config', 'runtime']) mkdirSync(join(this.folder, name), { mode: 0o700 });
    for (const [name, script] of Object.entries(COMMANDS))
      writeFileSync(join(this.folder, name), `#!/bin/sh\nCFS_TEST_DARWIN=${this.folder}\n${script}\n`, { mode: 0o755 });
  }

  /** Without PATH: the system's commands must be found by the program itself. */
  get env(): Readonly<Record<string, string | undefined>> {
    return {
      ...NOT_FOR_PROGRAMS,
      HOME: this.folder,
      XDG_STATE_HOME: join(this.folder, 'state'),
      XDG_CONFIG_HOME: join(this.folder, 'config'),
      XDG_RUNTIME_DIR: join(this.folder, 'runtime'),
      CFS_TEST_DARWIN: this.folder,
      NODE_OPTIONS: `--import ${MODULE}`,
    };
  }

  /** The arguments of umount(8), a line for each call. */
  get unmounted(): string {
    return this.#read('unmounted');
  }

  /** Calls of commands that macOS does not have, and accesses to a dead mount. */
  get wrong(): string {
    return this.#read('wrong');
  }

  get isMounted(): boolean {
    return existsSync(join(this.folder, 'table'));
  }

  /** No process serves the mount any more: whatever accesses it would hang. */
  declareDead(): void {
    writeFileSync(join(this.folder, 'dead'), '');
  }

  command(program: 'cfs' | 'cfs-mount', words: readonly string[]): string[] {
    return [process.execPath, join(DIST, `${program}.js`), ...words];
  }

  run(program: 'cfs' | 'cfs-mount', ...words: string[]): ReturnType<typeof runCommand> {
    return runCommand(this.command(program, words), { env: this.env, anyExitCode: true });
  }

  /** Takes the root as a kernel does while the mount command runs. @param hasEnded why none will run. @throws RootTaken */
  async accept(
    hasEnded: () => string | null,
    isPersistent = false,
  ): Promise<{ readonly client: NfsClient; readonly root: Buffer; readonly port: number; readonly path: string }> {
    const file = join(this.folder, 'words');
    rmSync(join(this.folder, 'refused'), { force: true });
    await vi.waitUntil(() => existsSync(file) || hasEnded() !== null, { timeout: START_MS_MAX });
    if (!existsSync(file)) throw new Error(`no mount command: ${hasEnded()}`);
    const words = readFileSync(file, 'utf8').trim().split('\n');
    rmSync(file);
    const [source = '', place] = words.slice(-2);
    if (place !== this.directory) throw new Error(`mounts on ${place}`);
    const port = Number(/port=(\d+)/.exec(words.join(' '))?.[1]);
    const client = await NfsClient.connect(port, undefined, { isPersistent });
    const path = source.slice(source.indexOf(':') + 1);
    const root = await client.mnt(path).catch(() => null);
    if (root === null) {
      client.close();
      writeFileSync(join(this.folder, 'refused'), '');
      throw new RootTaken();
    }
    const table = join(this.folder, 'table');
    writeFileSync(`${table}.new`, `${source} on ${this.directory} (nfs, nodev, nosuid, mounted by someone)\n`);
    renameSync(`${table}.new`, table);
    return { client, root, port, path };
  }

  dispose(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  #read(name: string): string {
    const file = join(this.folder, name);
    return existsSync(file) ? readFileSync(file, 'utf8') : '';
  }
}
