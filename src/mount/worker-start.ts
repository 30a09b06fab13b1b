import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { WorkerStart } from './mount-seam.ts';

/**
 * Most objects of the Worker are garbage by the next turn. Nurseries of 4 MiB fit into a processor's caches. Collecting them costs less
 * than with V8's 16 MiB, whose helper threads a small machine lacks (ADR 28).
 */
const WORKER_YOUNG_MIB = 12;

/** Starts the thread that answers the kernel. */
export function startWorker(start: WorkerStart): Worker {
  return new Worker(fileURLToPath(new URL('./mount-worker.cjs', import.meta.url)), {
    workerData: start,
    resourceLimits: { maxYoungGenerationSizeMb: WORKER_YOUNG_MIB },
  });
}
