import type { Options } from '../config/options.ts';
import { loadKernelAddon } from '../kernel/kernel-addon.ts';
import type { MountEntry } from '../kernel/mount-table.ts';
import { unmountDirectory } from '../kernel/mounting.ts';
import { removalOfNfs, removeNfsMount } from '../nfs/dead-mount.ts';
import { checkNfs } from '../nfs/system-mount.ts';
import { checkFuse } from './fuse-check.ts';

/** What a binding needs of the system. The command line uses this part of a `Binding` alone, so that it does not contain what mounts. */
export interface SystemBinding {
  /** @throws UsageError (noFuse) when no mount with it is possible on this system, with the fix */
  check(): void;
  /** Takes a dead mount away without accessing it. @returns null if it is gone, otherwise the reason why it is still there */
  detachDead(directory: string): Promise<string | null>;
  /** The command that removes a mount that does not answer, for a message. */
  removal(directory: string): string;
}

/** The addon is loaded for FUSE mounts alone: macOS has neither. */
const FUSE: SystemBinding = {
  check: checkFuse,
  async detachDead(directory) {
    try {
      unmountDirectory(directory, 'lazily', loadKernelAddon());
      return null;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  },
  removal: (directory) => `fusermount3 -uz ${directory}`,
};

const NFS: SystemBinding = { check: checkNfs, detachDead: removeNfsMount, removal: removalOfNfs };

/** The binding of the option `--binding`. */
export function systemBindingOf({ binding }: Pick<Options, 'binding'>): SystemBinding {
  return binding === 'nfs' ? NFS : FUSE;
}

/** The binding that can take a mount away; null for a mount that no process serves. */
export function systemBindingOfMount({ type }: MountEntry): SystemBinding | null {
  if (type.startsWith('fuse')) return FUSE;
  return /^nfs4?$/.test(type) ? NFS : null;
}
