import { vi } from 'vitest';

/** Waits for a condition; fails after `limitMs`. */
export async function until(condition: () => boolean | Promise<boolean>, limitMs = 10_000): Promise<void> {
  await vi.waitUntil(condition, { timeout: limitMs, interval: 5 });
}
