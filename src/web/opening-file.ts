import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Paths } from '../config/paths.ts';

/**
 * A file that leads a browser to the page with a single-use code. The arguments of a process are visible to every user of the machine, so
 * the browser gets the path of a file that only this user can read.
 */
export class OpeningFile {
  readonly path: string;

  /** @param how.route the place in the page, as in its fragment, with a slash; empty: its beginning */
  constructor(paths: Paths, how: { readonly origin: string; readonly code: string; readonly route: string }) {
    const directory = join(paths.runtimeDirectory ?? join(dirname(paths.accountsDirectory), 'run'), 'web');
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    this.path = join(directory, `open-${process.pid}.html`);
    rmSync(this.path, { force: true });
    const address = `${how.origin}/#${how.code}${how.route}`;
    const text = `<!doctype html>\n<meta charset="utf-8">\n<meta http-equiv="refresh" content="0;url=${address}">\n<title>Cloud folders</title>\n`;
    writeFileSync(this.path, text, { flag: 'wx', mode: 0o600 });
  }

  remove(): void {
    rmSync(this.path, { force: true });
  }
}
