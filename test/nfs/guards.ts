import { readdirSync, readFileSync } from 'node:fs';

/** The process ids of the guards of NFS mounts on a directory. */
export function guardsOf(directory: string): readonly number[] {
  return readdirSync('/proc').flatMap((name) => {
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      return words.includes('cfs-mount-guard') && words.includes(directory) ? [Number(name)] : [];
    } catch {
      return []; // no process, or one that has ended
    }
  });
}
