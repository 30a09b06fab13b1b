import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { test } from 'vitest';
import { PROJECT } from '../imports.ts';

/**
 * What a test needs of the machine beyond Node. Each function returns what is missing as a short text, or null. A skipped test
 * carries that text in its name, as `(needs: …)`; `npm test` counts skipped tests by it.
 */

/** Programs that are not on PATH, joined by commas. */
export function missingPrograms(...names: readonly string[]): string | null {
  const folders = (process.env.PATH ?? '').split(delimiter);
  const missing = names.filter((name) => !folders.some((folder) => isExecutable(join(folder, name))));
  return missing.length === 0 ? null : missing.join(', ');
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export function missingRoot(): string | null {
  return process.getuid?.() === 0 ? null : 'root';
}

/** For tests that run the built programs as a user other than root. */
export function missingForOtherUsers(): string | null {
  const argv = ['--reuid=65534', '--regid=65534', '--clear-groups', 'test', '-r', join(PROJECT, 'package.json')];
  return missingRoot() ?? (spawnSync('setpriv', argv).status === 0 ? null : 'a clone that other users can read');
}

/** For tests that run Node as a user other than root: it may lie in a folder of root's. */
export function missingNodeForOtherUsers(): string | null {
  const isRunnable = (): boolean => spawnSync(process.execPath, ['--version'], { cwd: '/', uid: 65534 }).status === 0;
  return missingRoot() ?? (isRunnable() ? null : 'a Node that other users can run');
}

/** fusermount3 of an ordinary user reads /etc/mtab when it unmounts. */
export function missingMtab(): string | null {
  return missingFile('/etc/mtab');
}

/** The place where a FUSE connection can be aborted. sysfs has its folder also where nothing is mounted on it. */
export function missingFuseControl(): string | null {
  return /^\S+ \S+ fusectl /m.test(readFileSync('/proc/mounts', 'utf8')) ? null : 'a mounted /sys/fs/fuse/connections';
}

export function missingFile(path: string): string | null {
  return existsSync(path) ? null : path;
}

/** Our addon, which needs a C compiler once. */
export function missingAddon(): string | null {
  const built = join(PROJECT, 'native-deps/fuse-kernel/build/fuse-kernel.node');
  return existsSync(built) ? null : 'the addon, built by a C compiler';
}

/** The title of a test or a group, with what is missing. */
export function titled(title: string, missing: string | null): string {
  return missing === null ? title : `${title} (needs: ${missing})`;
}

interface Declare {
  (title: string, run: () => unknown): void;
  (title: string, options: { readonly timeout: number }, run: () => unknown): void;
}

/** `test`, or a skipped test that says what is missing. */
export function testUnless(missing: string | null): Declare {
  if (missing === null) return test as unknown as Declare;
  return (title: string) => test.skip(`${title} (needs: ${missing})`, () => {});
}
