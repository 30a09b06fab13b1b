import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The project's root, with a slash at its end. */
export const PROJECT = fileURLToPath(new URL('..', import.meta.url));

/** One `import` of one file. */
export interface Import {
  /** Path below the project's root: `src/fs/handles.ts`. */
  readonly file: string;
  /** As written: `../store/node-table.ts` or `undici`. */
  readonly specifier: string;
}

// `from '…'`, `import '…'`, `import('…')` and `commonJs('…')`; the specifier must look like one, so that prose in a text does not count.
const IMPORT = /(?:\bfrom|\bimport|\bcommonJs)\s*\(?\s*['"]([@\w./:-]+)['"]/g;

/** Every file with one of these endings below a folder, as paths below the project's root. */
export function filesBelow(folder: string, endings: readonly string[]): string[] {
  return readdirSync(join(PROJECT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && endings.some((ending) => entry.name.endsWith(ending)))
    .map((entry) => relative(PROJECT, join(entry.parentPath, entry.name)))
    .filter((path) => !path.includes('node_modules/') && !path.includes('/build/'))
    .sort();
}

export function textOf(file: string): string {
  return readFileSync(join(PROJECT, file), 'utf8');
}

export function importsOf(file: string, text = textOf(file)): Import[] {
  // Comments may speak of imports.
  const code = text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '$1');
  return [...code.matchAll(IMPORT)].map(([, specifier = '']) => ({ file, specifier }));
}
