import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';

/**
 * Most objects of the Worker are garbage by the next turn. Nurseries of 4 MiB fit into a processor's caches. Collecting them costs less
 * than with V8's 16 MiB, whose helper threads a small machine lacks (ADR 28).
 */
const WORKER_YOUNG_MIB = 12;

/**
 * The thread that answers the kernel. It starts as the first module of the mounting process, and loads its program while the main thread
 * loads its own. It waits for a `WorkerStart`.
 */
export const fileSystemThread = new Worker(fileURLToPath(new URL('./mount-worker.cjs', import.meta.url)), {
  resourceLimits: { maxYoungGenerationSizeMb: WORKER_YOUNG_MIB },
});
