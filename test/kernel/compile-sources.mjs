// `node test/kernel/compile-sources.mjs [plain|sanitized]`: prints a folder with the kernel binding and its test hosts as JavaScript
// that a child process can run, in the same folders as here. Types are taken off, nothing is checked: so tests in child processes
// run what is in src/, never a stale dist/. Kept by content below node_modules/.cache; the word chooses the addon.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** What the host process consists of. */
const FOLDERS = ['src/base', 'src/kernel', 'src/kernel/fuse-native', 'src/nfs', 'test/kernel', 'test/nfs'];
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');
const FLAGS = [
  '--ignoreConfig',
  ...['--noCheck', '--noResolve'],
  ...['--target', 'ES2023', '--module', 'nodenext', '--types', 'node'],
  ...['--verbatimModuleSyntax', '--rewriteRelativeImportExtensions', '--inlineSourceMap'],
];

function compiledSources(addon) {
  const files = FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder))
      .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
      .map((name) => join(folder, name)),
  ).sort();
  const texts = files.map((file) => readFileSync(join(ROOT, file), 'utf8'));
  const key = createHash('sha256')
    .update(JSON.stringify([ROOT, addon, files, texts])) // ROOT: checkouts may share one node_modules
    .digest('hex')
    .slice(0, 16);
  const cache = join(ROOT, 'node_modules/.cache/cfs-kernel-tests');
  const out = join(cache, `${addon}-${key}`);
  if (existsSync(out)) return out;

  // Those of earlier sources, not the other addon's: both may be in use at the moment.
  const old = existsSync(cache) ? readdirSync(cache).filter((name) => name.startsWith(`${addon}-`)) : [];
  for (const name of old) rmSync(join(cache, name), { recursive: true, force: true });
  const unfinished = join(cache, `unfinished-${process.pid}`);
  mkdirSync(unfinished, { recursive: true });
  execFileSync(process.execPath, [TSC, ...FLAGS, '--rootDir', ROOT, '--outDir', unfinished, ...files], {
    cwd: ROOT,
    stdio: ['ignore', 2, 2],
  });
  writeFileSync(join(unfinished, 'package.json'), '{"type":"module"}');
  const built = 'native-deps/fuse-kernel/build';
  mkdirSync(join(unfinished, dirname(built)), { recursive: true });
  symlinkSync(join(ROOT, built, addon === 'plain' ? '' : 'sanitized'), join(unfinished, built));
  try {
    renameSync(unfinished, out);
  } catch (error) {
    if (!existsSync(out)) throw error; // else another test process was first with the same
    rmSync(unfinished, { recursive: true, force: true });
  }
  return out;
}

process.stdout.write(compiledSources(process.argv[2] ?? 'plain'));
