import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';

/**
 * Most objects of the Worker are garbage by the next turn. Nurseries of 4 MiB fit into a processor's caches. Collecting them costs less
 * than with V8's 16 MiB, whose helper threads a small machine lacks (ADR 28).
 */
const WORKER_YOUNG_MIB = 12;

/** The first file of the process and the bundle that it runs have no module in common (ADR 23). */
const STARTED = Symbol.for('cfs-mount: thread of the file system');
const common = globalThis as { [STARTED]?: Worker };

/**
 * Starts the thread that answers the kernel. It is the first act of the mounting process: the thread loads its program while the main thread loads
 * its own. It waits for a `WorkerStart`.
 */
export function startFileSystemThread(): void {
  common[STARTED] = new Worker(fileURLToPath(new URL('./mount-worker.cjs', import.meta.url)), {
    resourceLimits: { maxYoungGenerationSizeMb: WORKER_YOUNG_MIB },
  });
}

/** The thread that `startFileSystemThread` has started. */
export function fileSystemThread(): Worker {
  const worker = common[STARTED];
  if (worker === undefined) throw new Error('the mounting process was not started by its first file');
  return worker;
}
