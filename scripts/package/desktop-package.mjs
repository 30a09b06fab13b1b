// The Debian package of the desktop integration: the extension of Nautilus and the program for sidebars, both from desktop/.
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const source = fileURLToPath(new URL('../../desktop/', import.meta.url));

/** The libraries of the programs: by the name of pkg-config, the Debian package. */
const LIBRARIES = {
  cloudproviders: 'libcloudproviders0',
  'gio-2.0': 'libglib2.0-0',
  'json-glib-1.0': 'libjson-glib-1.0-0',
  'libnautilus-extension-4': 'libnautilus-extension4',
};

/**
 * What the build lacks here; null for nothing.
 *
 * @param {string} architecture as Node names it
 */
export function missingForDesktop(architecture) {
  if (architecture !== process.arch) return `it is built on ${architecture} only`;
  for (const name of Object.keys(LIBRARIES))
    if (spawnSync('pkg-config', ['--exists', name]).status !== 0) return `pkg-config does not know ${name}`;
  return null;
}

/**
 * Builds the programs and installs them below a directory.
 *
 * @param {string} directory
 * @param {string} work an existing directory for the build
 */
export function placeDesktop(directory, work) {
  const how = [`DESTDIR=${directory}`, `BUILD=${join(work, 'desktop-build')}`, 'CFLAGS=-O2', 'LDFLAGS=-s'];
  execFileSync('make', ['-s', '-C', source, 'install', ...how], { stdio: ['ignore', 2, 2] });
  const documents = join(directory, 'usr/share/doc/cfs-desktop');
  mkdirSync(documents, { recursive: true });
  copyFileSync(join(source, '../LICENSE'), join(documents, 'copyright'));
}

/**
 * The control file: deb-control(5). The versions of the libraries are at least those of the build.
 *
 * @param {{ version: string, architecture: string, installedKiB: number }} how
 */
export function desktopControlFile({ version, architecture, installedKiB }) {
  const libraries = Object.entries(LIBRARIES).map(([name, debian]) => {
    const built = execFileSync('pkg-config', ['--modversion', name], { encoding: 'utf8' }).trim();
    return `${debian} (>= ${built.split('.').slice(0, 2).join('.')})`;
  });
  return [
    'Package: cfs-desktop',
    `Version: ${version}`,
    `Architecture: ${architecture}`,
    'Maintainer: The cfs-mount developers <cfs-mount@localhost>',
    `Installed-Size: ${installedKiB}`,
    `Depends: cfs-mount (= ${version}), libc6, ${libraries.join(', ')}`,
    'Enhances: nautilus',
    'Section: gnome',
    'Priority: optional',
    'Description: Cloud folders in file managers',
    ' Emblems and a menu for files of cfs-mount in Nautilus, and an entry for each mount',
    ' in the sidebar of file managers that use libcloudproviders.',
    ' .',
    ' A Nautilus that runs during the installation loads it at its next start: nautilus -q',
    '',
  ].join('\n');
}
