import { runCompiled } from './compiled-program.ts';

/** The first file of the Worker, `dist/mount/mount-worker.cjs`. Its bundle is `mount-worker.ts`. */
runCompiled(import.meta.url);
