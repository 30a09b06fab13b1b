import { readlinkSync } from 'node:fs';
import type { LinuxMount } from './linux.ts';
import { abortConnection, unmountDirectory } from './mount-point.ts';
import { mountOn } from './mount-table.ts';
import { type KernelAddon, loadKernelAddon } from './native.ts';

/**
 * Ends a mount whose thread no longer answers, from any other thread of the process: every caller that waits in it gets an error
 * at once, and the directory is free. `mount` is what that thread had: its `directory` and `descriptor`.
 */
export function abandonMount(
  mount: Pick<LinuxMount, 'directory' | 'descriptor'>,
  addon: KernelAddon = loadKernelAddon(),
): void {
  if (isConnection(mount.descriptor)) {
    addon.abandonDescriptor(mount.descriptor);
    // A thread in the middle of a notification holds the connection, and waits for a lock of those who wait for an answer.
    const entry = mountOn(mount.directory);
    if (entry?.type.startsWith('fuse')) abortConnection(entry, addon);
  }
  if (mountOn(mount.directory)?.type.startsWith('fuse')) {
    unmountDirectory(mount.directory, 'lazily', addon);
  }
}

/** A thread that ended has closed its connection already, and the number may be somebody else's by now. */
function isConnection(descriptor: number): boolean {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`).endsWith('/fuse');
  } catch {
    return false;
  }
}
