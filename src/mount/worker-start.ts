import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { Worker } from 'node:worker_threads';
import type { WorkerStart } from './mount-seam.ts';

/**
 * Most objects of the Worker are garbage by the next turn. Nurseries of 4 MiB fit into a processor's caches. Collecting them costs less
 * than with V8's 16 MiB, whose helper threads a small machine lacks (ADR 28).
 */
const WORKER_YOUNG_MIB = 12;

/** Starts the thread that answers the kernel. */
export function startWorker(start: WorkerStart): Worker {
  // The flag of this process (`MOUNT_FLAGS`) would go before the Worker's own limit.
  setFlagsFromString('--max-semi-space-size=0');
  return new Worker(fileURLToPath(new URL('./mount-worker.cjs', import.meta.url)), {
    workerData: start,
    resourceLimits: { maxYoungGenerationSizeMb: WORKER_YOUNG_MIB },
  });
}
