import { readFileSync } from 'node:fs';

/**
 * The kernel's boot id (random(4)); null if the system has none. A changed id means a possible power cut. With the same id it was
 * SIGKILL at most, after which every write is present.
 */
export function currentBootId(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return null;
  }
}
