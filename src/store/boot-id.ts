import { readFileSync } from 'node:fs';

/**
 * Names the time since the machine started; null where the system does not tell (random(4)). Whether it changed tells a power
 * cut, or at least the possibility of one, from SIGKILL, after which everything that was written is there.
 */
export function currentBootId(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return null;
  }
}
