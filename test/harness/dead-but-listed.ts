import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { vi } from 'vitest';

/** A process that has ended, and for which its parent never asks, as the first process of some containers. */
export interface DeadButListed {
  readonly pid: number;
  /** Of /proc/PID/stat, from the third on (proc(5)). */
  fields(): readonly string[];
  dispose(): Promise<void>;
}

export async function deadButListed(): Promise<DeadButListed> {
  const stdio = ['ignore', 'pipe', 'inherit', 'pipe'] as const;
  const parent = spawn('sh', ['-c', 'cat <&3 & echo $!; exec sleep 600'], { stdio: [...stdio] });
  const [line] = (await once(parent.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
  const pid = Number(line.toString());
  const fields = (): readonly string[] =>
    readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
  // A shell might ask for it; sleep(1) does not.
  await vi.waitUntil(() => readFileSync(`/proc/${parent.pid}/comm`, 'utf8') === 'sleep\n', { timeout: 30_000 });
  (parent.stdio[3] as Writable).end();
  await vi.waitUntil(() => fields()[0] === 'Z', { timeout: 30_000 });
  return {
    pid,
    fields,
    dispose: async () => {
      const exited = once(parent, 'exit');
      parent.kill();
      await exited;
    },
  };
}
