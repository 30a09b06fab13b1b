// The Debian packages behind `npm start`, `npm test` and `.ci/run`, in one place: the program (or file) that shows its presence, and the
// package that contains it. Node built-ins only, because bootstrap.mjs reads this before anything is installed.
//
//   node scripts/system-packages.mjs LIST...   installs what is missing of these lists (as root); their services stay stopped
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

/** As in make(1): a program, perhaps with arguments (`ccache gcc`), or the path of one. */
export const CC = process.env.CC?.trim() || 'cc';

/**
 * @typedef {object} SystemPackage
 * @property {string} name the Debian package
 * @property {string} [program] found on PATH where the package is not needed
 * @property {string} [file] a path that exists where the package is not needed; `*` stands for one path segment
 */

/** @type {Record<string, SystemPackage[]>} */
export const LISTS = {
  /** A mount, and the addon that is compiled for it. */
  start: [
    { name: 'fuse3', program: 'fusermount3' },
    { name: 'gcc', program: CC },
    { name: 'libc6-dev', file: '/usr/include/stdio.h' },
  ],
  /** In addition, what the tests of the mount itself use. `start` and `test` together stay below 60 MB and start no service. */
  test: [{ name: 'attr', program: 'setfattr' }],
  /** Programs that tests run on a mount, or as a second opinion. */
  programs: [
    ...['curl', 'ed', 'git', 'make', 'openssl', 'perl', 'python3', 'rclone', 'rsync', 'sqlite3', 'strace', 'unzip'].map(
      (program) => ({ name: program, program }),
    ),
    { name: 'groff-base', program: 'groff' },
    { name: 'procps', program: 'ps' },
    { name: 'vim', program: 'vim' },
    { name: 'zip', program: 'zip' },
    { name: 'zsh', program: 'zsh' },
    // For `--binding fuse-native`. New distributions do not have it.
    { name: 'libfuse2', file: '/usr/lib/*/libfuse.so.2' },
  ],
  /** A desktop; browsers, databases and kernels go here as well. Half a minute to install. */
  desktop: [
    // For the page of `cfs web`: with its libraries 115 MB to download.
    { name: 'chromium', program: 'chromium' },
    { name: 'dbus-daemon', program: 'dbus-run-session' },
    // An S3 store for `cfs serve --objects`: 60 MB to download.
    { name: 'ceph-common', program: 'ceph' },
    { name: 'ceph-mon', program: 'ceph-mon' },
    { name: 'ceph-osd', program: 'ceph-osd' },
    // The trash of a desktop, for `gio`.
    { name: 'gvfs', file: '/usr/lib/*/gio/modules/libgvfsdbus.so' },
    { name: 'libglib2.0-bin', program: 'gio' },
    // Notices, and the services of a desktop in their tests.
    { name: 'dbus-bin', program: 'dbus-send' },
    { name: 'libnotify-bin', program: 'notify-send' },
    { name: 'python3-gi', file: '/usr/lib/python3/dist-packages/gi/__init__.py' },
    // What the programs of desktop/ are built and tested with.
    { name: 'gir1.2-cloudproviders-0.3.0', file: '/usr/lib/*/girepository-1.0/CloudProviders-0.3.typelib' },
    { name: 'libcloudproviders-dev', file: '/usr/lib/*/pkgconfig/cloudproviders.pc' },
    { name: 'libjson-glib-dev', file: '/usr/lib/*/pkgconfig/json-glib-1.0.pc' },
    { name: 'libnautilus-extension-dev', file: '/usr/lib/*/pkgconfig/libnautilus-extension-4.pc' },
    { name: 'pkg-config', program: 'pkg-config' },
    // The file manager of GNOME, and a window manager: 60 MB to download.
    { name: 'nautilus', program: 'nautilus' },
    { name: 'openbox', program: 'openbox' },
    { name: 'pcmanfm', program: 'pcmanfm' },
    // A pooler of connections to PostgreSQL.
    { name: 'pgbouncer', program: 'pgbouncer' },
    // A database for tests of the server's rules: it is started by them, and its service stays stopped.
    { name: 'postgresql', file: '/usr/lib/postgresql/*/bin/initdb' },
    { name: 'radosgw', program: 'radosgw' },
    { name: 'xauth', program: 'xauth' },
    { name: 'xdotool', program: 'xdotool' },
    { name: 'xvfb', program: 'xvfb-run' },
    // A kernel as a process, for its NFS client, and a program for its start.
    { name: 'user-mode-linux', program: 'linux.uml' },
    { name: 'busybox-static', program: 'busybox' },
    // An NFS client in user space.
    { name: 'libnfs-utils', program: 'nfs-ls' },
  ],
};

/** Debian packages that this machine lacks, of the named lists; none on macOS, whose mount needs none. @param {string[]} lists keys of `LISTS` */
export function missingPackages(...lists) {
  if (process.platform !== 'linux') return [];
  return lists.flatMap((list) => LISTS[list].filter((each) => !isThere(each)).map(({ name }) => name));
}

/** @param {SystemPackage} wanted */
function isThere({ program, file = '' }) {
  if (program !== undefined) return onPath(program) || onPath(program.split(/\s+/)[0]);
  const [before, after] = file.split('*');
  return after === undefined
    ? existsSync(file)
    : spawnSync('sh', ['-c', `ls ${before}*${after}`], { stdio: 'ignore' }).status === 0;
}

/**
 * Whether execvp(3) would find the program. A name with a slash is a path, and is not searched for (CC=/opt/llvm/bin/clang).
 * @param {string} program
 */
export function onPath(program) {
  const places = program.includes('/') ? [''] : (process.env.PATH ?? '').split(delimiter);
  return places.some((directory) => {
    try {
      accessSync(resolve(root, directory, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Whether this process may install packages. */
export function mayInstall() {
  return process.getuid?.() === 0 && onPath('apt-get');
}

/**
 * The command that installs the packages.
 * @param {string[]} packages
 */
export function installCommand(packages) {
  return `sudo apt-get install -y ${packages.join(' ')}`;
}

const POLICY = '/usr/sbin/policy-rc.d';
const POLICY_TEXT =
  '#!/bin/sh\n# Written by cfs-mount while it installs packages for its tests; remove it if it is still here.\nexit 101\n';

/**
 * Installs Debian packages.
 *
 * @param {string[]} packages
 * @returns {boolean} whether all of them are installed; apt-get prints the cause of a failure to standard error
 */
export function install(packages) {
  const apt = (/** @type {'ignore' | 2} */ stderr, /** @type {string[]} */ ...args) =>
    spawnSync('apt-get', ['-qq', ...args], {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
      stdio: ['ignore', 'ignore', stderr],
    }).status === 0;
  const wanted = ['install', '-y', '--no-install-recommends', ...packages];
  // The package lists may be there already; a fresh container has none.
  return apt('ignore', ...wanted) || (apt(2, 'update') && apt(2, ...wanted));
}

/**
 * Installs the missing packages of the lists. No package starts a service: invoke-rc.d(8) asks policy-rc.d, whose 101 forbids it.
 *
 * @param {string[]} lists keys of `LISTS`
 * @returns {string[]} the packages that could not be installed: a distribution may not have one of them
 */
export function installLists(...lists) {
  const packages = missingPackages(...lists);
  if (packages.length === 0) return [];
  console.error(`installing ${packages.join(' ')}`);
  const isForeign = existsSync(POLICY) && readFileSync(POLICY, 'utf8') !== POLICY_TEXT;
  if (!isForeign) writeFileSync(POLICY, POLICY_TEXT, { mode: 0o755 });
  try {
    return install(packages) ? [] : packages.filter((name) => !install([name]));
  } finally {
    if (!isForeign) rmSync(POLICY, { force: true });
  }
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === join(root, 'scripts/system-packages.mjs')) {
  const lists = process.argv.slice(2);
  const unknown = lists.filter((list) => !(list in LISTS));
  if (lists.length === 0 || unknown.length > 0) {
    console.error(`usage: node scripts/system-packages.mjs ${Object.keys(LISTS).join('|')} ...`);
    process.exit(2);
  }
  if (!mayInstall()) {
    console.error('this needs root, and apt-get');
    process.exit(1);
  }
  const refused = installLists(...lists);
  if (refused.length > 0) console.error(`not to be had here: ${refused.join(' ')}; tests that need them are skipped`);
}
