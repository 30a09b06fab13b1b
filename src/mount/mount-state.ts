import { execFile } from 'node:child_process';
import type { MountEntry } from '../kernel/mount-table.ts';
import { hasServer, isOurNfs } from '../nfs/dead-mount.ts';
import { MOUNT_SUBTYPE } from './dash-o-options.ts';

/** How long a mount may take to answer before it counts as hanging. */
const PROBE_MS_MAX = 3000;

export type MountState = 'alive' | 'dead' | 'hangs';

/** Whether the mount is one of ours, alive or dead. */
export function isOurs(mount: MountEntry): boolean {
  return mount.type === `fuse.${MOUNT_SUBTYPE}` || isOurNfs(mount);
}

/** Whether a mount answers. This process does not access it. An NFS mount whose server is dead would block every process that does. */
export async function stateOf(mount: MountEntry): Promise<MountState> {
  if (isOurNfs(mount)) return (await hasServer(mount)) ? 'alive' : 'dead';
  return probeMount(mount.directory);
}

/**
 * Another process asks, so that ours cannot hang. It uses statfs(2), because the kernel answers stat(2) from its cache even after the mounting
 * process was killed.
 */
export function probeMount(path: string): Promise<MountState> {
  const options = { encoding: 'utf8', timeout: PROBE_MS_MAX, env: { ...process.env, LC_ALL: 'C' } } as const;
  return new Promise((resolve) => {
    execFile('stat', ['--file-system', '--', path], options, (error, _stdout, stderr) => {
      if (error === null) resolve('alive');
      else if (error.killed || typeof error.code !== 'number') resolve('hangs');
      else resolve(/not connected|connection abort/i.test(stderr) ? 'dead' : 'alive');
    });
  });
}
