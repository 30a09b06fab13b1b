import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface PageFile {
  readonly type: string;
  readonly bytes: Uint8Array;
}

/** All files of the page, by the path of their request: no request is ever mapped to a path of the disk. */
const FILES: Readonly<Record<string, readonly [name: string, type: string]>> = {
  '/': ['index.html', 'text/html; charset=utf-8'],
  '/page.js': ['page.js', 'text/javascript; charset=utf-8'],
  '/vendor.js': ['vendor.js', 'text/javascript; charset=utf-8'],
  '/page.css': ['page.css', 'text/css; charset=utf-8'],
  '/vendor.css': ['vendor.css', 'text/css; charset=utf-8'],
  '/icon.svg': ['icon.svg', 'image/svg+xml'],
  '/licences.txt': ['licences.txt', 'text/plain; charset=utf-8'],
};

/** The files as `scripts/page.mjs` built them. */
export function readPageFiles(): ReadonlyMap<string, PageFile> {
  return new Map(
    Object.entries(FILES).map(([path, [name, type]]) => {
      const file = fileURLToPath(new URL(`./page/${name}`, import.meta.url));
      return [path, { type, bytes: readFileSync(file) }];
    }),
  );
}
