// The Debian package as a tree of files: control fields, maintainer scripts, and what lies outside of the program's own directory.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const packaging = fileURLToPath(new URL('../../packaging/', import.meta.url));
const page = fileURLToPath(new URL('../../src/web/page/', import.meta.url));

/** dpkg unpacks the program to ROOT/package; postinst keeps it in ROOT/versions/VERSION and points ROOT/current to it. */
export const ROOT = '/usr/lib/cfs-mount';
/** Architectures as Node and as Debian name them. */
export const DEBIAN_ARCHITECTURES = { x64: 'amd64', arm64: 'arm64' };

/** Debian and Ubuntu releases have these libraries under the same names. GCC releases by the symbol versions that they introduced. */
const LIBSTDCXX_RELEASES = [
  [21, '5.2'],
  [28, '10'],
  [29, '11'],
  [30, '12'],
];

/**
 * @typedef {object} TreeFile
 * @property {string | Buffer} [bytes]
 * @property {string} [link] target of a symbolic link
 * @property {number} [mode] 0o644 unless given
 */

/**
 * The control file: deb-control(5).
 *
 * @param {{ version: string, architecture: string, installedKiB: number, depends: readonly string[], description: string }} how
 */
export function controlFile({ version, architecture, installedKiB, depends, description }) {
  return [
    'Package: cfs-mount',
    `Version: ${version}`,
    `Architecture: ${architecture}`,
    'Maintainer: The cfs-mount developers <cfs-mount@localhost>',
    `Installed-Size: ${installedKiB}`,
    `Depends: ${depends.join(', ')}`,
    'Recommends: ca-certificates',
    'Suggests: libnotify-bin',
    'Section: utils',
    'Priority: optional',
    `Description: ${description.split(': ')[0]}`,
    ' cfs-mount mounts a cloud file store as an ordinary directory. Programs read and',
    ' write the local disk, online or offline. Every save becomes a new version of',
    ' the same file on the service, and uploads resume where they stopped.',
    ' .',
    ' This package contains the programs cfs-mount and cfs, and the Node.js that runs',
    ' them. It uses no other Node.js.',
    '',
  ].join('\n');
}

/**
 * The dependencies of the programs, by the symbol versions that they name: `GLIBC_2.34` requires libc6 2.34.
 *
 * @param {readonly Buffer[]} programs ELF files
 */
export function dependenciesOf(programs) {
  const [libc, libstdcxx] = [/\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)/g, /\0GLIBCXX_3\.4\.(\d+)(?=\0)/g].map((pattern) =>
    Math.max(...programs.map((bytes) => newest(bytes.toString('latin1'), pattern))),
  );
  const release = LIBSTDCXX_RELEASES.find(([symbols = 0]) => Number(symbols) >= libstdcxx);
  if (release === undefined) throw new Error(`no known libstdc++ has GLIBCXX_3.4.${libstdcxx}`);
  return ['fuse3', `libc6 (>= 2.${libc})`, 'libgcc-s1', `libstdc++6 (>= ${release[1]})`];
}

/**
 * @param {string} text
 * @param {RegExp} pattern whose first group is a number
 */
function newest(text, pattern) {
  return Math.max(0, ...[...text.matchAll(pattern)].map(([, number]) => Number(number)));
}

/**
 * A maintainer script with the directory, the version and the common functions in it.
 *
 * @param {'postinst' | 'postrm'} name
 * @param {string} version
 * @param {string} [root] ROOT unless a test has another one
 */
export function maintainerScript(name, version, root = ROOT) {
  const functions = readFileSync(join(packaging, 'version-directories.sh'), 'utf8');
  return readFileSync(join(packaging, name), 'utf8')
    .replaceAll('@ROOT@', root)
    .replaceAll('@VERSION@', version)
    .replace('@FUNCTIONS@\n', () => functions);
}

/**
 * Files outside of the program's directory, by their absolute paths.
 *
 * @param {object} made
 * @param {Readonly<Record<string, string>>} made.manuals text by file name
 * @param {(shell: string) => string} made.completion
 * @param {(manager: 'user' | 'system') => string} made.unit
 * @param {string} made.licences
 * @param {string} made.changelog
 * @returns {Record<string, TreeFile>}
 */
export function systemFiles({ manuals, completion, unit, licences, changelog }) {
  const completions = '/usr/share/bash-completion/completions';
  const fish = '/usr/share/fish/vendor_completions.d';
  return {
    '/usr/bin/cfs': { link: '../lib/cfs-mount/current/bin/cfs' },
    '/usr/bin/cfs-mount': { link: '../lib/cfs-mount/current/bin/cfs-mount' },
    ...Object.fromEntries(
      Object.entries(manuals).map(([name, text]) => [`/usr/share/man/man1/${name}.gz`, { bytes: compressed(text) }]),
    ),
    [`${completions}/cfs`]: { bytes: completion('bash') },
    [`${completions}/cfs-mount`]: { link: 'cfs' },
    '/usr/share/zsh/vendor-completions/_cfs': { bytes: completion('zsh') },
    [`${fish}/cfs.fish`]: { bytes: completion('fish') },
    [`${fish}/cfs-mount.fish`]: { link: 'cfs.fish' },
    '/usr/lib/systemd/user/cfs-mount@.service': { bytes: unit('user') },
    '/usr/lib/systemd/system/cfs-mount@.service': { bytes: unit('system') },
    '/usr/share/applications/cfs-web.desktop': { bytes: readFileSync(join(packaging, 'cfs-web.desktop')) },
    '/usr/share/icons/hicolor/scalable/apps/cfs-web.svg': { bytes: readFileSync(join(page, 'icon.svg')) },
    '/usr/share/doc/cfs-mount/copyright': { bytes: licences },
    '/usr/share/doc/cfs-mount/changelog.gz': { bytes: compressed(changelog) },
  };
}

/** gzip(1) -9n. @param {string} text */
function compressed(text) {
  return gzipSync(text, { level: 9 });
}

/**
 * The md5sums file of the package: deb-md5sums(5).
 *
 * @param {Readonly<Record<string, Buffer>>} files by paths without a leading slash
 */
export function md5sums(files) {
  return Object.entries(files)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([path, bytes]) => `${createHash('md5').update(bytes).digest('hex')}  ${path}\n`)
    .join('');
}
