import { join } from 'node:path';
import { PROJECT } from '../imports.ts';
import { type CommandResult, runCommand } from './command.ts';
import type { MountFixture } from './mount-fixture.ts';

const CFS = join(PROJECT, 'dist/cli/cfs.js');
/** Takes the other mounts away, asks nobody: they may be dead. */
const SCRIPT = `
  findmnt -rno TARGET -t fuse.cfs-mount | while read -r other; do [ "$other" = "$1" ] || umount -lic "$other"; done
  exec "$2" "$3" doctor --json`;

/**
 * `cfs doctor --json` in a mount namespace in which the other mounts of this machine are not: they are none of ours, and whoever looks
 * at one keeps it busy for those who unmount it.
 */
export function loneDoctor(mount: MountFixture, env: Readonly<Record<string, string>> = {}): Promise<CommandResult> {
  return runCommand(['unshare', '--mount', 'sh', '-c', SCRIPT, 'sh', mount.directory, process.execPath, CFS], {
    env: { ...mount.env(), ...env },
    anyExitCode: true,
  });
}
