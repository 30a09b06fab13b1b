import { join } from 'node:path';
import { PROJECT } from '../imports.ts';
import { type CommandResult, runCommand } from './command.ts';
import type { MountFixture } from './mount-fixture.ts';
import { inMountNamespace } from './mount-namespace.ts';

const CFS = join(PROJECT, 'dist/cli/cfs.js');

/** `cfs doctor --json` of this mount alone; for users other than root, who cannot hide the other mounts, beside those. */
export function loneDoctor(mount: MountFixture, env: Readonly<Record<string, string>> = {}): Promise<CommandResult> {
  const alone = inMountNamespace('exec "$1" "$2" doctor --json', mount.directory, [process.execPath, CFS]);
  return runCommand(process.getuid?.() === 0 ? alone : [process.execPath, CFS, 'doctor', '--json'], {
    env: { ...mount.env(), ...env },
    anyExitCode: true,
  });
}
