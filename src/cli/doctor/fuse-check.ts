import { accessSync, closeSync, constants, openSync, readFileSync, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { Options } from '../../config/options.ts';
import { SYSTEM_PATH } from '../mount-point.ts';
import { type Finding, finding } from './finding.ts';
import type { Machine } from './machine.ts';

const SETUID = 0o4000;

/** Whether this user can mount at all: addon, device, fusermount3, allow_other. */
export function* checkFuse(machine: Machine, options: Pick<Options, 'allowOther'>): Generator<Finding> {
  try {
    machine.loadAddon();
  } catch (error) {
    yield finding('addon-missing', `the kernel addon cannot be loaded: ${firstLine(error)}`);
  }
  yield* checkDevice(machine);
  yield* checkFusermount(machine);
  if (options.allowOther && machine.uid !== 0 && !mayAllowOther(machine.fuseConfPath)) {
    const what = `--allow-other is set, and ${machine.fuseConfPath} does not have user_allow_other`;
    yield finding('allow-other', what, machine.fuseConfPath);
  }
}

function* checkDevice(machine: Machine): Generator<Finding> {
  const { devicePath } = machine;
  try {
    closeSync(openSync(devicePath, 'r+'));
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    const missing = ['ENOENT', 'ENODEV', 'ENXIO'].includes(code);
    if (!missing) yield finding('fuse-device-refused', `${devicePath} cannot be opened (${code})`, devicePath);
    else if (knowsFuse(machine.filesystemsPath))
      yield finding('fuse-device', `the kernel knows fuse, and there is no ${devicePath}`);
    else yield finding('fuse-module', `the kernel does not know fuse, and there is no ${devicePath}`);
  }
}

function* checkFusermount(machine: Machine): Generator<Finding> {
  const path = onPath('fusermount3', machine.env.PATH ?? SYSTEM_PATH);
  if (path === null) {
    yield finding('fusermount-missing', 'there is no fusermount3 on the path');
    return;
  }
  // Root mounts by itself.
  const { mode, uid } = statSync(path);
  if (machine.uid !== 0 && (uid !== 0 || (mode & SETUID) === 0))
    yield finding('fusermount-setuid', `${path} is not setuid root (mode ${(mode & 0o7777).toString(8)})`, path);
}

function knowsFuse(filesystemsPath: string): boolean {
  return /^(nodev\s+)?\s*fuse$/m.test(textOf(filesystemsPath));
}

/** fuse.conf(5): a line of its own. */
function mayAllowOther(path: string): boolean {
  return /^\s*user_allow_other\s*$/m.test(textOf(path));
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function onPath(program: string, path: string): string | null {
  for (const directory of path.split(delimiter).filter(Boolean)) {
    try {
      accessSync(join(directory, program), constants.X_OK);
      return join(directory, program);
    } catch {
      // The next one.
    }
  }
  return null;
}

function firstLine(error: unknown): string {
  return String(error instanceof Error ? error.message : error).split('\n', 1)[0] ?? '';
}
