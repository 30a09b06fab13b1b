import { runCompiled } from './compiled-program.ts';
import { startFileSystemThread } from './worker-start.ts';

/** The first file of the mounting process, `dist/mount/mounting-process.cjs`, after `flags-back.ts`. Its bundle is `cli/mounting-main.ts`. */
startFileSystemThread();
runCompiled(import.meta.url);
