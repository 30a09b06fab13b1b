import { readdirSync, readFileSync } from 'node:fs';
import { expect } from 'vitest';

/** SIGSTOP. Whoever gets it has to run to hear of it; the other threads answer until then, which on a busy machine takes a while. */
export async function stopProcess(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  await expect.poll(() => isStopped(pid), { timeout: 60_000, interval: 5 }).toBe(true);
}

function isStopped(pid: number): boolean {
  const threads = readdirSync(`/proc/${pid}/task`);
  return threads.every((tid) => /^State:\tT/m.test(readFileSync(`/proc/${pid}/task/${tid}/status`, 'utf8')));
}
