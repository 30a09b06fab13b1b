import { readFileSync } from 'node:fs';

/** How many descriptors this process may have (RLIMIT_NOFILE, soft; proc(5)). Infinity where the system does not say. */
export function descriptorLimit(): number {
  try {
    const limit = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return limit === undefined ? Number.POSITIVE_INFINITY : Number(limit);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
