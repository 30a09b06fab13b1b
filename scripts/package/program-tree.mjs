// The program as the Debian package contains it: the files of the npm package, its dependencies in the versions of the lock file, and Node.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { placeNode } from './bundled-node.mjs';
import { licenceTexts } from './licences.mjs';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** The files of a dependency that Node loads. Sources, types, maps and documents are left out. */
const LOADED = /\.([cm]?js|json|node|wasm)$/;
const LEFT_OUT = [
  /^node_modules\/\.package-lock\.json$/,
  /^node_modules\/\.bin\//,
  /^node_modules\/.*\/(\.github|test|tests|__tests__|benchmarks?|examples?)\//,
  // LMDB's addon for Node-API works with every Node.
  /\.musl\.node$/,
  /\.abi\d+\.[a-z]+\.node$/,
];
/** Ours: sources of the addon and its build script need a compiler, and man pages lie where man(1) looks. */
const OURS_LEFT_OUT = [
  /^native-deps\/fuse-kernel\/[^/]+\.(c|h|md)$/,
  /^scripts\//,
  /^man\//,
  /^docs\//,
  /^(npm-shrinkwrap\.json|README\.md|CHANGELOG\.md|SECURITY\.md)$/,
  /\.d\.ts(\.map)?$/,
];

/**
 * Whether the Debian package contains a file of the installed npm package.
 *
 * @param {string} path relative to the directory of the npm package
 * @param {string} architecture as Node names it
 */
export function isProgramFile(path, architecture) {
  if (/^native-deps\/fuse-kernel\/prebuilds\//.test(path)) return path.includes(`/linux-${architecture}/`);
  if (path === 'package.json' || path === 'LICENSE') return true;
  if (path.startsWith('node_modules/')) return LOADED.test(path) && !LEFT_OUT.some((pattern) => pattern.test(path));
  return !OURS_LEFT_OUT.some((pattern) => pattern.test(path));
}

/**
 * @param {string} npmPackage path of the file of `npm pack`
 * @param {string} directory where the program is placed; it must not exist
 * @param {{ architecture: string, version: string, cache: string }} how `version`: that of the Debian package, which the program reports
 * @returns {string} the licences of everything in it
 */
export function placeProgram(npmPackage, directory, { architecture, version, cache }) {
  mkdirSync(directory, { recursive: true });
  execFileSync('tar', ['-xzf', npmPackage, '--strip-components=1', '-C', directory]);
  const npm = [
    'ci',
    '--omit=dev',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
    '--prefer-offline',
  ];
  execFileSync('npm', [...npm, '--os=linux', `--cpu=${architecture}`, '--libc=glibc'], {
    cwd: directory,
    stdio: ['ignore', 2, 2],
  });
  placeNode(
    architecture,
    { program: join(directory, 'bin/node'), licence: join(directory, 'bin/node.LICENSE') },
    cache,
  );
  const addon = `native-deps/fuse-kernel/prebuilds/linux-${architecture}/fuse-kernel.node`;
  if (!existsSync(join(directory, addon)))
    throw new Error(`the npm package has no ${addon}: the compiler for it is missing`);
  const licences = licenceTexts(directory);
  rmSync(join(directory, 'bin/node.LICENSE'));
  const paths = filesOf(directory);
  for (const path of paths) if (!isProgramFile(path, architecture)) rmSync(join(directory, path));
  removeEmpty(directory);
  const manifest = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'));
  writeFileSync(join(directory, 'package.json'), `${JSON.stringify(packagedManifest(manifest, version), null, 2)}\n`);
  return licences;
}

/**
 * @param {Record<string, unknown>} manifest
 * @param {string} version
 */
export function packagedManifest({ name, description, type, license, dependencies, exports }, version) {
  return { name, version, description, type, license, ...(exports === undefined ? {} : { exports }), dependencies };
}

/**
 * Paths of all files below a directory, relative to it, sorted.
 *
 * @param {string} directory
 */
export function filesOf(directory) {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1))
    .sort();
}

/** @param {string} directory */
function removeEmpty(directory) {
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    if (!entry.isDirectory()) continue;
    const path = join(directory, entry.name);
    removeEmpty(path);
    if (readdirSync(path).length === 0) rmdirSync(path);
  }
}

/**
 * Builds the npm package from this clone.
 *
 * @param {string} directory where it is written
 * @returns {string} its path
 */
export function npmPackage(directory) {
  const out = execFileSync('npm', ['pack', '--silent', '--json', '--pack-destination', directory], {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 2],
    maxBuffer: 64 * 1024 ** 2,
  });
  return join(directory, JSON.parse(out.slice(out.indexOf('[')))[0].filename);
}
