import { readFileSync } from 'node:fs';

/** State of a process. `ending`: its threads are leaving the kernel; they may finish a call, but start none. */
export type ProcessLife = 'running' | 'ending' | 'ended';

/**
 * An ended process stays listed, and visible to kill(2), until its parent reaps it. An init process may do that only
 * every two seconds or, in a container, never.
 */
export function processLife(pid: number): ProcessLife {
  const stat = processStat(pid);
  if (stat === null) return isListed(pid) ? 'running' : 'ended';
  if (!GONE.has(stat.state)) return 'running';
  return stat.threads <= 1 ? 'ended' : 'ending';
}

/** Start time of a live process, in kernel ticks since boot; null without /proc, or without such a process. */
export function processStart(pid: number): string | null {
  return processStat(pid)?.startTicks ?? null;
}

/** Zombie and dead, by the codes of proc(5). */
const GONE: ReadonlySet<string> = new Set(['Z', 'X']);

/** From /proc/PID/stat; null if it does not exist. */
function processStat(pid: number): { state: string; threads: number; startTicks: string } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The text before the third field may contain anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', threads: Number(fields[17]), startTicks: fields[19] ?? '' };
  } catch {
    return null;
  }
}

/** For systems without /proc. */
function isListed(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
