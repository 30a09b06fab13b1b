import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { runCommand } from '../harness/command.ts';
import { PROJECT } from '../imports.ts';

const SOURCE = join(PROJECT, 'test/desktop/main-loop-turns.c');

/** The turns of a main loop of GLib, measured within the program: what other programs do does not count. */
export class MainLoopTurns {
  /** For the program. */
  readonly env: Readonly<Record<string, string>>;
  readonly #file: string;
  #read = 0;

  private constructor(library: string, file: string) {
    this.env = { LD_PRELOAD: library, CFS_TURNS: file };
    this.#file = file;
    writeFileSync(file, '');
  }

  /** @param folder for the library and its results */
  static async build(folder: string): Promise<MainLoopTurns> {
    const library = join(folder, 'main-loop-turns.so');
    await runCommand([process.env.CC ?? 'cc', '-O2', '-Wall', '-Werror', '-fPIC', '-shared', '-o', library, SOURCE]);
    return new MainLoopTurns(library, join(folder, 'main-loop-turns'));
  }

  /** The processor time of each turn since the call before, in ms. */
  turns(): readonly number[] {
    const text = readFileSync(this.#file, 'utf8');
    const lines = text.slice(this.#read).split('\n').slice(0, -1);
    this.#read = text.lastIndexOf('\n') + 1;
    return lines.map(Number);
  }
}
