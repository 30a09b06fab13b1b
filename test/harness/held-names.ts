import { rmSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { runCommand } from './command.ts';

const SOURCE = new URL('./held-names.c', import.meta.url).pathname;

/** A resolver that can be made to answer nothing, for programs that run with `env`; knows names below `.test`, all this machine. */
export class HeldNames {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** @throws Error without a C compiler */
  static async make(): Promise<HeldNames> {
    const names = new HeldNames(await mkdtemp(path.join(tmpdir(), 'cfs-names-')));
    const { LD_PRELOAD = '' } = names.env;
    await runCommand([process.env.CC ?? 'cc', '-shared', '-fPIC', '-O1', '-Wall', '-o', LD_PRELOAD, SOURCE]);
    return names;
  }

  get env(): Readonly<Record<string, string>> {
    return { LD_PRELOAD: path.join(this.#folder, 'held-names.so'), CFS_TEST_NAMES_HELD: this.#gate };
  }

  /** From now on no lookup ends. */
  hold(): void {
    writeFileSync(this.#gate, '');
  }

  /** Those that wait end, and later ones do at once. */
  letGo(): void {
    rmSync(this.#gate, { force: true });
  }

  async dispose(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true });
  }

  get #gate(): string {
    return path.join(this.#folder, 'held');
  }
}
