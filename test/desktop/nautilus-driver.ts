import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { missingPrograms } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

const SOURCE = join(PROJECT, 'test/desktop/nautilus-driver.c');
const LIBRARIES = ['libnautilus-extension-4', 'json-glib-1.0', 'gio-unix-2.0', 'gmodule-2.0'];

/** What is missing to build the extension; null: nothing. */
export function missingForExtension(): string | null {
  const missing = missingPrograms('make', 'pkg-config', process.env.CC ?? 'cc');
  if (missing !== null) return missing;
  const { status } = spawnSync('pkg-config', ['--exists', ...LIBRARIES]);
  return status === 0 ? null : 'libnautilus-extension-dev, libjson-glib-dev';
}

/** Another text in a source file of desktop/. */
export interface SourceEdit {
  readonly file: string;
  readonly text: string;
  readonly by: string;
}

async function edited({ file, text, by }: SourceEdit, folder: string): Promise<string> {
  await cp(join(PROJECT, 'desktop'), folder, { recursive: true });
  const source = await readFile(join(folder, file), 'utf8');
  expect(source.split(text).length).toBe(2);
  await writeFile(join(folder, file), source.replace(text, by));
  return folder;
}

/** The extension, built, and the program that drives it as Nautilus does. */
export class BuiltExtension {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** @param edit a safeguard that is taken out of the sources, to see what fails without it */
  static async build(edit?: SourceEdit): Promise<BuiltExtension> {
    const folder = await mkdtemp(join(tmpdir(), 'cfs-nautilus-'));
    const sources = edit === undefined ? join(PROJECT, 'desktop') : await edited(edit, join(folder, 'desktop'));
    const library = join(folder, 'libcfs-nautilus.so');
    await runCommand(['make', '-C', sources, `BUILD=${folder}`, 'CFLAGS=-O1 -g -Werror', library]);
    const { stdout } = await runCommand(['pkg-config', '--cflags', '--libs', ...LIBRARIES]);
    const flags = stdout.trim().split(/\s+/);
    const driver = join(folder, 'driver');
    await runCommand([process.env.CC ?? 'cc', '-std=gnu11', '-g', '-Wall', '-o', driver, SOURCE, ...flags]);
    return new BuiltExtension(folder);
  }

  get library(): string {
    return join(this.folder, 'libcfs-nautilus.so');
  }

  dispose(): Promise<void> {
    return rm(this.folder, { recursive: true, force: true });
  }
}

/** A process with the extension loaded. */
export class NautilusDriver {
  readonly #child: ChildProcess;
  readonly #ended: Promise<number | null>;
  #lines: string[] = [];
  #warnings = '';

  constructor(built: BuiltExtension, env: Readonly<Record<string, string | undefined>>) {
    this.#child = spawn(join(built.folder, 'driver'), [built.library], {
      env: { ...process.env, ...env },
      stdio: 'pipe',
    });
    this.#ended = new Promise((ended) => this.#child.on('exit', (code) => ended(code)));
    if (this.#child.stdout !== null)
      createInterface({ input: this.#child.stdout }).on('line', (line) => this.#lines.push(line));
    this.#child.stderr?.on('data', (chunk) => {
      this.#warnings += chunk;
    });
  }

  /** Everything printed since the start. */
  get lines(): readonly string[] {
    return this.#lines;
  }

  send(...words: readonly string[]): void {
    this.#child.stdin?.write(`${words.join('\t')}\n`);
  }

  /** Waits until the line was printed last for its path. */
  async shows(path: string, emblem: string): Promise<void> {
    const last = (): string | undefined => this.#lines.findLast((line) => line.startsWith(`${path}\t`));
    await expect.poll(last, { timeout: 30_000, interval: 20 }).toBe(`${path}\t${emblem}`);
  }

  /** As `shows`, of a mount that the extension has still to find: it looks for mounts when a file is shown. */
  async showsInTheEnd(path: string, emblem: string): Promise<void> {
    const isShown = async (): Promise<boolean> => {
      await this.answers('show', path);
      return this.#lines.includes(`${path}\t${emblem}`);
    };
    await expect.poll(isShown, { timeout: 30_000 }).toBe(true);
  }

  /** Waits until the extension said it to the person. @returns all of the message */
  async says(text: string): Promise<string> {
    const said = (): string => this.#lines.findLast((line) => line.startsWith('said\t') && line.includes(text)) ?? '';
    await expect.poll(said, { timeout: 30_000, interval: 20 }).not.toBe('');
    return said();
  }

  /** The labels of the menu of a selection. */
  async menu(...paths: readonly string[]): Promise<readonly string[]> {
    const lines = await this.answers('menu', ...paths);
    return (
      lines
        .find((line) => line.startsWith('menu'))
        ?.split('\t')
        .slice(1) ?? []
    );
  }

  /** How often the extension invalidated a file. */
  async invalidations(): Promise<number> {
    const line = (await this.answers('count')).find((each) => each.startsWith('count'));
    return Number(line?.split('\t')[1]);
  }

  async click(label: string, ...paths: readonly string[]): Promise<void> {
    expect(await this.menu(...paths)).toEqual(expect.arrayContaining([expect.stringMatching(new RegExp(`${label}$`))]));
    expect(await this.answers('click', label)).toContain('clicked');
  }

  /** Returns when the main loop has answered: it does not wait for a mount. @returns the lines since the call */
  async answers(...words: readonly string[]): Promise<readonly string[]> {
    const from = this.#lines.length;
    if (words.length > 0) this.send(...words);
    this.send('ping');
    await expect.poll(() => this.#lines.slice(from), { timeout: 30_000, interval: 10 }).toContain('pong');
    return this.#lines.slice(from, -1);
  }

  /** Ends it in order; fails if it complained, or crashed. */
  async dispose(): Promise<void> {
    this.#child.stdin?.end();
    const code = await this.#ended;
    expect(this.#warnings).toBe('');
    expect(code).toBe(0);
  }
}
