import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { whyUnsupported } from '../../base/supported-system.ts';
import type { Options } from '../../config/options.ts';
import { cureOfRefused, isMtabReadable } from '../../kernel/fusermount.ts';
import { type Finding, finding } from './finding.ts';
import type { Machine } from './machine.ts';

/** Whether this user can mount at all: addon, device, fusermount3, allow_other. */
export function* checkFuse(machine: Machine, options: Pick<Options, 'allowOther' | 'continuity'>): Generator<Finding> {
  yield* checkPrograms(machine);
  yield* checkMountHelper(machine);
  yield* checkDevice(machine);
  yield* checkRequestTimeout(machine);
  yield* checkFusermount(machine);
  if (options.continuity) yield* checkContinuity(machine);
  if (options.allowOther && machine.uid !== 0 && !mayAllowOther(machine.fuseConfPath)) {
    const what = `--allow-other is set, and ${machine.fuseConfPath} does not have user_allow_other`;
    yield finding('allow-other', what, machine.fuseConfPath);
  }
}

function* checkPrograms(machine: Machine): Generator<Finding> {
  const unsupported = whyUnsupported(machine.system());
  if (unsupported !== null) {
    yield finding(unsupported.what === 'glibc' ? 'glibc-too-old' : 'architecture', unsupported.sentence);
    return;
  }
  try {
    machine.loadAddon();
  } catch (error) {
    yield finding('addon-missing', `the kernel addon cannot be loaded: ${firstLine(error)}`);
  }
}

/** With a line of ours in fstab(5), mount(8) must find cfs-mount without PATH. */
function* checkMountHelper({ fstabPath, helperPath }: Machine): Generator<Finding> {
  if (!/^\s*[^#\s]\S*\s+\S+\s+(fuse\.)?cfs-mount\s/m.test(textOf(fstabPath))) return;
  if (helperPath.split(delimiter).some((directory) => existsSync(join(directory, 'cfs-mount')))) return;
  yield finding('mount-helper-hidden', `${fstabPath} mounts with cfs-mount, which mount(8) does not find`, fstabPath);
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
      yield finding('fuse-device', `the kernel supports FUSE, but there is no ${devicePath}`);
    else
      yield finding(
        'fuse-module',
        `the kernel does not support FUSE (its module is not loaded), so there is no ${devicePath}`,
      );
  }
}

/**
 * A mount never sets a timeout of its own at INIT, so the kernel uses the default, limited by the maximum; 0 is none (set_request_timeout in
 * fs/fuse/inode.c). Any limit can abort a mount: reads that make progress and requests that wait for the disk have no deadline here.
 */
function* checkRequestTimeout({ fuseSettingsPath }: Machine): Generator<Finding> {
  const settings = ['default_request_timeout', 'max_request_timeout'] as const;
  const limits = settings
    .map((name) => ({ name, seconds: Number(textOf(join(fuseSettingsPath, name))) }))
    .filter(({ seconds }) => seconds > 0)
    .sort((a, b) => a.seconds - b.seconds);
  const [shortest] = limits;
  if (shortest === undefined) return;
  const { name, seconds } = shortest;
  yield finding(
    'fuse-request-timeout',
    `fs.fuse.${name} is ${seconds}: a request of more than ${seconds} s ends the mount`,
  );
}

/** FUSE_NOTIFY_RESEND is in Linux 6.9; a running mount decides by the kernel's offer (negotiation.ts). */
function* checkContinuity(machine: Machine): Generator<Finding> {
  if (machine.keeperProgram() === null)
    yield finding('continuity-keeper', '--continuity is set, and its keeper was not built');
  const release = machine.kernelRelease();
  const [major = 0, minor = 0] = release.split('.').map(Number);
  if (major < 6 || (major === 6 && minor < 9))
    yield finding(
      'continuity-kernel',
      `--continuity is set, and Linux ${release} does not send the calls of a dead process again`,
    );
}

/** Root needs no fusermount3. */
function* checkFusermount(machine: Machine): Generator<Finding> {
  if (machine.uid === 0) return;
  const found = machine.fusermount();
  if (found === null) yield finding('fusermount-missing', 'fusermount3 is not in PATH');
  else if (!found.mayRun)
    yield {
      ...finding('fusermount-refused', `this user may not run ${found.path} (mode ${found.mode.toString(8)})`),
      cure: cureOfRefused(found),
    };
  else if (!found.isSetuidRoot)
    yield finding('fusermount-setuid', `${found.path} is not setuid root (mode ${found.mode.toString(8)})`, found.path);
  if (!isMtabReadable(machine.mtabPath))
    yield finding('mtab-missing', `there is no ${machine.mtabPath}`, machine.mtabPath);
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

function firstLine(error: unknown): string {
  return String(error instanceof Error ? error.message : error).split('\n', 1)[0] ?? '';
}
