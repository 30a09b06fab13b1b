// Bundles each of the two threads of the mounting process into one CommonJS file. To find, read and compile 250 modules one by one takes
// a quarter of the start of a mount, and an ES import of `node:http` reads every export, which loads a WebSocket (ADR 23).
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const root = fileURLToPath(new URL('..', import.meta.url));

for (const name of ['mount/mounting-process', 'mount/mount-worker']) {
  const bundle = await rolldown({
    input: `${root}src/${name}.ts`,
    platform: 'node',
    tsconfig: `${root}tsconfig.json`,
    external: /^[a-z@]/, // packages and Node's own: ours begin with a dot or a slash
    onLog(level, log) {
      throw new Error(`${level}: ${log.message}`);
    },
  });
  const file = `${root}dist/${name}.cjs`;
  await bundle.write({
    file,
    format: 'cjs',
    codeSplitting: false,
    sourcemap: true,
    sourcemapExcludeSources: true,
    comments: false, // the source maps lead to src/, which has them
  });
  // V8 keeps a source in two bytes for each character if one of them is not in Latin-1. They are all in strings and patterns.
  const escaped = readFileSync(file, 'utf8').replace(
    /[^\0-\x7f]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  writeFileSync(file, escaped);
}
