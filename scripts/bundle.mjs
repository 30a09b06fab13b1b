// The two threads of the mounting process as one file each, in place of what the compiler made of them: 250 modules that are
// found, read and compiled one by one are a quarter of what the start of a mount costs (ADR 23).
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
  await bundle.write({
    file: `${root}dist/${name}.js`,
    format: 'esm',
    codeSplitting: false,
    sourcemap: true,
    sourcemapExcludeSources: true,
    comments: false, // they are in src/, where the maps point
  });
}
