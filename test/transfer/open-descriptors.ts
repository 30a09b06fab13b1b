import { readdirSync, readlinkSync } from 'node:fs';

/** How many descriptors of this process are open on the file. */
export function openDescriptors(path: string): number {
  const isOn = (fd: string): boolean => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === path;
    } catch {
      return false; // the descriptor of this very listing
    }
  };
  return readdirSync('/proc/self/fd').filter(isOn).length;
}
