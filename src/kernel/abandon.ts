import { readlinkSync } from 'node:fs';
import { type KernelAddon, loadKernelAddon } from './kernel-addon.ts';
import type { LinuxMount } from './linux.ts';
import { placeOf, readMountTable } from './mount-table.ts';
import { abortConnection, unmountDirectory } from './mounting.ts';

/**
 * Ends a mount whose thread no longer responds, from any other thread of the process: every waiting caller gets an error immediately, and
 * the directory is freed. Another mount over it, or in its place, stays.
 */
export function abandonMount(
  mount: Pick<LinuxMount, 'directory' | 'device' | 'descriptor'>,
  addon: KernelAddon = loadKernelAddon(),
): void {
  const { directory, device } = mount;
  if (isConnection(mount.descriptor)) {
    addon.abandonDescriptor(mount.descriptor);
    // A thread that writes a notification holds the connection, and waits for a lock of callers that wait for a reply.
    if (readMountTable().some((entry) => entry.device === device)) {
      abortConnection(device, placeOf(device, directory), addon);
    }
  }
  const place = placeOf(device, directory);
  if (place !== null) unmountDirectory(place, 'lazily', addon);
}

/** A thread that ended has closed its connection: the number may belong to another descriptor by now. */
function isConnection(descriptor: number): boolean {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`).endsWith('/fuse');
  } catch {
    return false;
  }
}
