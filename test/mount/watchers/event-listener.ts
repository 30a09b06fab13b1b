import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { expect } from 'vitest';
import { runCommand } from '../../harness/command.ts';

const SOURCE = new URL('./events.c', import.meta.url).pathname;

/** Listens to the events of a folder in a process of its own (`events.c`). */
export class EventListener {
  readonly #child: ChildProcess;
  readonly #folder: string;
  #lines: string[] = [];

  private constructor(child: ChildProcess, folder: string) {
    this.#child = child;
    this.#folder = folder;
    if (child.stdout !== null) createInterface({ input: child.stdout }).on('line', (line) => this.#lines.push(line));
  }

  static async start(how: 'inotify' | 'fanotify', ...paths: readonly string[]): Promise<EventListener> {
    const folder = await mkdtemp(path.join(tmpdir(), 'cfs-events-'));
    const program = path.join(folder, 'events');
    await runCommand([process.env.CC ?? 'cc', '-O1', '-Wall', '-o', program, SOURCE]);
    const listener = new EventListener(
      spawn(program, [how, ...paths], { stdio: ['ignore', 'pipe', 'inherit'] }),
      folder,
    );
    await expect.poll(() => listener.#lines, { timeout: 30_000 }).toEqual(['ready']);
    listener.#lines = [];
    return listener;
  }

  /** The events since the start: number of the path, events, name. */
  get events(): readonly string[] {
    return this.#lines;
  }

  /** Waits for the event. @returns all events until then, which are forgotten */
  async until(event: string): Promise<readonly string[]> {
    await expect.poll(() => this.#lines, { timeout: 30_000, interval: 20 }).toContain(event);
    const events = this.#lines;
    this.#lines = [];
    return events;
  }

  async dispose(): Promise<void> {
    this.#child.kill('SIGKILL');
    await rm(this.#folder, { recursive: true, force: true });
  }
}
