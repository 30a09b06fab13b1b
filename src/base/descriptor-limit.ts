import { readFileSync } from 'node:fs';

/** The descriptor limit of this process (RLIMIT_NOFILE, soft; proc(5)). Infinity if the system does not report it. */
export function descriptorLimit(): number {
  try {
    const limit = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return limit === undefined ? Number.POSITIVE_INFINITY : Number(limit);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
