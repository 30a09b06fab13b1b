import { readFileSync } from 'node:fs';

/** How far a process is. `ending`: its threads are on their way out of the kernel; they may finish a call, but begin none. */
export type ProcessLife = 'running' | 'ending' | 'ended';

/**
 * What has ended may stay listed for as long as its parent likes, and kill(2) finds it all that time: where it was inherited by a
 * first process that asks for the dead every two seconds, or, in a container, never.
 */
export function processLife(pid: number): ProcessLife {
  const stat = processStat(pid);
  if (stat === null) return isListed(pid) ? 'running' : 'ended';
  if (!GONE.has(stat.state)) return 'running';
  return stat.threads <= 1 ? 'ended' : 'ending';
}

/** When a process that has not ended began, in the kernel's ticks since boot; null where there is no /proc, or no such process. */
export function processStart(pid: number): string | null {
  return processStat(pid)?.startTicks ?? null;
}

/** Zombie and dead, as proc(5) calls them. */
const GONE: ReadonlySet<string> = new Set(['Z', 'X']);

/** From /proc/PID/stat; null where there is none. */
function processStat(pid: number): { state: string; threads: number; startTicks: string } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // What stands before the third field may contain anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', threads: Number(fields[17]), startTicks: fields[19] ?? '' };
  } catch {
    return null;
  }
}

/** Where there is no /proc. */
function isListed(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
