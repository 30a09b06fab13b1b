// The Node that the Debian package contains. It comes from an npm package whose SHA-256 stands in packaging/node.json, beside that of
// the program in it: the publisher's archive has the same program (docs/releasing.md says how to compare).
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));

/**
 * @typedef {object} PinnedPackage
 * @property {string} name of the npm package
 * @property {string} sha256 of its file
 * @property {string} programSha256 of bin/node in it
 */

/** @returns {{ version: string, packages: Record<string, PinnedPackage> }} */
export function pinnedNode() {
  return JSON.parse(readFileSync(join(root, 'packaging/node.json'), 'utf8'));
}

/** @param {string | Buffer} bytes */
export function sha256(bytes) {
  return createHash('sha256').update(bytes).digest('hex');
}

/**
 * Puts the program and its licence into a directory.
 *
 * @param {string} architecture as Node names it
 * @param {{ program: string, licence: string }} places paths of the two files
 * @param {string} cache a directory that keeps the downloaded file
 * @throws {Error} if the npm package or the program in it is not the pinned one
 */
export function placeNode(architecture, places, cache) {
  const { version, packages } = pinnedNode();
  const pinned = packages[architecture];
  if (pinned === undefined) throw new Error(`packaging/node.json names no Node for ${architecture}`);
  const file = join(cache, `${pinned.name}-${version}.tgz`);
  mkdirSync(cache, { recursive: true });
  if (!existsSync(file))
    execFileSync('npm', ['pack', '--silent', '--pack-destination', cache, `${pinned.name}@${version}`], {
      cwd: root,
      stdio: ['ignore', 'ignore', 2],
    });
  expectSum(file, pinned.sha256);
  const unpacked = `${places.program}.unpacked`;
  mkdirSync(unpacked, { recursive: true });
  execFileSync('tar', ['-xzf', file, '-C', unpacked, 'package/bin/node', 'package/LICENSE']);
  renameSync(join(unpacked, 'package/bin/node'), places.program);
  renameSync(join(unpacked, 'package/LICENSE'), places.licence);
  rmSync(unpacked, { recursive: true });
  expectSum(places.program, pinned.programSha256);
}

/**
 * @param {string} file
 * @param {string} wanted its SHA-256
 * @throws {Error} if the file has another one; the file is removed, so that the next build downloads it again
 */
export function expectSum(file, wanted) {
  const found = sha256(readFileSync(file));
  if (found === wanted) return;
  rmSync(file);
  throw new Error(`${file} has the SHA-256 ${found}, and packaging/node.json pins ${wanted}`);
}
