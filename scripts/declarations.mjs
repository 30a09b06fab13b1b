// The declarations of the public API (src/api): dist/types gets what the three entry points mention, and nothing else.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A relative import in a declaration. */
const SPECIFIER = /\b(?:from|import\() ?['"](\.[^'"]+\.ts)['"]/g;
const root = fileURLToPath(new URL('..', import.meta.url));
const target = join(root, 'dist/types');
const all = mkdtempSync(join(tmpdir(), 'cfs-types-'));
try {
  const tsc = join(root, 'node_modules/typescript/bin/tsc');
  const argv = [tsc, '-p', join(root, 'tsconfig.types.json'), '--outDir', all];
  const { status } = spawnSync(process.execPath, argv, { stdio: 'inherit' });
  if (status !== 0) throw new Error(`tsc ended with ${status}`);

  rmSync(target, { recursive: true, force: true });
  const todo = ['api/mount.d.ts', 'api/client.d.ts', 'api/server.d.ts'];
  for (let path = todo.pop(); path !== undefined; path = todo.pop()) {
    const place = join(target, path);
    if (existsSync(place)) continue;
    const text = readFileSync(join(all, path), 'utf8');
    for (const [, name] of text.matchAll(SPECIFIER)) todo.push(join(dirname(path), name.replace(/\.ts$/, '.d.ts')));
    mkdirSync(dirname(place), { recursive: true });
    // A declaration names the module, not its source.
    writeFileSync(
      place,
      text.replaceAll(SPECIFIER, (found) => found.replace(/\.ts(['"])$/, '.js$1')),
    );
  }
} finally {
  rmSync(all, { recursive: true });
}
