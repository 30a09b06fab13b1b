import { createRequire } from 'node:module';

/**
 * Loads a package as CommonJS. `import` parses a CommonJS file a second time for its export names, and ES modules load
 * file by file. CPU at each start of a mount: saxes 5 ms instead of 80, fast-xml-parser 10 instead of 60, undici
 * without fetch, caches, WebSocket and mocks 45 instead of 140.
 */
export const commonJs = createRequire(import.meta.url);
