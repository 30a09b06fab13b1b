import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { missingFile } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

const PYTHON = '/usr/bin/python3';
const SCRIPT = join(PROJECT, 'test/desktop/main-loop-pings.py');

export function missingForPings(): string | null {
  return missingFile(PYTHON) ?? missingFile('/usr/lib/python3/dist-packages/gi/__init__.py');
}

/** Replies of the main loop of Nautilus. */
export interface Replies {
  /** Times in ms. */
  readonly ms: readonly number[];
  /** Questions without a reply: Nautilus does not run. */
  readonly failed: number;
}

/** Asks the main loop of Nautilus for a reply fifty times a second. */
export class MainLoopPings {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: Interface;

  /** @param env with the address of the session bus */
  constructor(env: Readonly<Record<string, string | undefined>>) {
    this.#child = spawn(PYTHON, [SCRIPT], { stdio: 'pipe', env: { ...process.env, ...env } });
    this.#lines = createInterface({ input: this.#child.stdout });
  }

  /** The replies since the call before. */
  async replies(): Promise<Replies> {
    this.#child.stdin.write('\n');
    const [line] = (await once(this.#lines, 'line')) as [string];
    return JSON.parse(line);
  }

  async dispose(): Promise<void> {
    this.#child.stdin.end();
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, 'exit');
  }
}
