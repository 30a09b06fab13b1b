// The licences of everything that the Debian package contains: debian/copyright has their whole texts.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const LICENCE_FILE = /^(licen[cs]e|copying|copyright|notice)(\.[a-z]+)?$/i;
/** The texts of these are the same everywhere; the package itself names the author. */
const STANDARD_TEXTS = {
  MIT: `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`,
  ISC: `Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided that the
above copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF
MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY
DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION,
ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.`,
};

/**
 * @param {string} directory the installed npm package, with Node's licence at bin/node.LICENSE
 * @returns {string} the text of /usr/share/doc/cfs-mount/copyright
 * @throws {Error} for a package whose licence has no text
 */
export function licenceTexts(directory) {
  const parts = [
    section('cfs-mount', readFileSync(join(directory, 'LICENSE'), 'utf8')),
    section(
      'Node.js (bin/node) and the libraries inside it',
      readFileSync(join(directory, 'bin/node.LICENSE'), 'utf8'),
    ),
  ];
  parts.push(
    section(
      'Libraries in the page (dist/web/page)',
      readFileSync(join(directory, 'dist/web/page/licences.txt'), 'utf8'),
    ),
  );
  for (const path of packagesOf(directory)) parts.push(...licencesOf(directory, path));
  return `The licences of cfs-mount and of everything that this package contains.\n${parts.join('')}`;
}

/**
 * @param {string} directory
 * @param {string} path of a package below it
 * @returns {string[]} its licences, each with a title
 * @throws {Error} if its licence has no text
 */
export function licencesOf(directory, path) {
  const manifest = JSON.parse(readFileSync(join(directory, path, 'package.json'), 'utf8'));
  const title = `${manifest.name} ${manifest.version}, ${manifest.license}`;
  const files = readdirSync(join(directory, path), { recursive: true, encoding: 'utf8' })
    .filter((name) => LICENCE_FILE.test(name.split('/').at(-1) ?? '') && !/(^|\/)node_modules\//.test(name))
    .sort();
  if (files.length > 0)
    return files.map((name) =>
      section(`${title} (${join(path, name)})`, readFileSync(join(directory, path, name), 'utf8')),
    );
  const text = STANDARD_TEXTS[/** @type {keyof typeof STANDARD_TEXTS} */ (manifest.license)];
  if (text === undefined) throw new Error(`${path}: its licence ${manifest.license} has no text`);
  const author = typeof manifest.author === 'string' ? manifest.author : (manifest.author?.name ?? 'its authors');
  return [section(title, `Copyright (c) ${author}\n\n${text}`)];
}

/**
 * @param {string} title
 * @param {string} text
 */
function section(title, text) {
  return `\n${'='.repeat(100)}\n${title}\n${'='.repeat(100)}\n\n${text.trim()}\n`;
}

/**
 * Folders of all packages below node_modules, also of those inside others, sorted.
 *
 * @param {string} directory
 * @param {string} [below]
 * @returns {string[]}
 */
export function packagesOf(directory, below = 'node_modules') {
  if (!existsSync(join(directory, below))) return [];
  const names = readdirSync(join(directory, below)).filter((name) => !name.startsWith('.'));
  const folders = names.flatMap((name) =>
    name.startsWith('@') ? readdirSync(join(directory, below, name)).map((each) => `${name}/${each}`) : [name],
  );
  return folders
    .map((name) => join(below, name))
    .filter((path) => existsSync(join(directory, path, 'package.json')))
    .flatMap((path) => [path, ...packagesOf(directory, join(path, 'node_modules'))])
    .sort();
}
