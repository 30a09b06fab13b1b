// Lets a plain `node --import ./test/kernel/typescript-loader.mjs file.ts` run the sources, Workers included: types are taken off by
// the TypeScript that is installed anyway. So child processes of tests run what is in src/, never a stale dist/.
import { readFileSync } from 'node:fs';
import { register } from 'node:module';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort } from 'node:worker_threads';

/** Hook of node:module's loader thread. */
export async function load(url, context, nextLoad) {
  if (!url.startsWith('file:') || !url.endsWith('.ts')) return nextLoad(url, context);
  const { default: typescript } = await import('typescript');
  const { outputText } = typescript.transpileModule(readFileSync(fileURLToPath(url), 'utf8'), {
    fileName: fileURLToPath(url),
    compilerOptions: { target: 'ES2023', module: 'ESNext', verbatimModuleSyntax: true, inlineSourceMap: true },
  });
  return { format: 'module', shortCircuit: true, source: outputText };
}

// The loader thread imports this file too; registering from there would not end. There, no parentPort of ours exists.
if (isMainThread || parentPort !== null) register(import.meta.url);
