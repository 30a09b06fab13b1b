// `npm run package`: builds the Debian package of this clone, with Node inside.
//
//   npm run package                          for this machine's architecture, into dist-packages/
//   npm run package -- --arch arm64          for another one: the addon is cross-built
//   npm run package -- --revision 2          the same version with another Node: 0.1.0-2
//   npm run package -- --fast                compressed in seconds and three times as large, for tests
//   npm run package -- --out DIR
//
// A second package, cfs-desktop, has the extension of Nautilus and the sidebar. It is built where their libraries are installed.
//
// The same commit gives the same bytes, wherever it is built with the same compiler and dpkg. All times are that of the commit.
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { built } from './built.mjs';
import {
  controlFile,
  DEBIAN_ARCHITECTURES,
  dependenciesOf,
  maintainerScript,
  md5sums,
  ROOT,
  systemFiles,
} from './package/debian-package.mjs';
import { desktopControlFile, missingForDesktop, placeDesktop } from './package/desktop-package.mjs';
import { filesOf, npmPackage, placeProgram } from './package/program-tree.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const { values: flags } = parseArgs({
  options: {
    arch: { type: 'string', default: process.arch },
    revision: { type: 'string', default: '1' },
    out: { type: 'string', default: join(root, 'dist-packages') },
    fast: { type: 'boolean', default: false },
    /** The file of `npm pack`, if it exists already. */
    npm: { type: 'string' },
  },
});
const architecture = flags.arch === 'amd64' ? 'x64' : flags.arch;
const debianArchitecture = DEBIAN_ARCHITECTURES[/** @type {keyof typeof DEBIAN_ARCHITECTURES} */ (architecture)];
if (debianArchitecture === undefined) throw new Error(`no package for ${architecture}: x64 or arm64`);

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const version = `${manifest.version}-${flags.revision}`;
// The package would contain an incomplete or old dist/.
execFileSync(process.execPath, ['scripts/bootstrap.mjs'], { cwd: root, stdio: ['ignore', 2, 2] });
const work = mkdtempSync(join(tmpdir(), 'cfs-package-'));
try {
  const npm = flags.npm === undefined ? npmPackage(work) : resolve(flags.npm);
  const tree = join(work, 'tree');
  const program = join(tree, ROOT, 'package');
  const cache = join(root, 'node_modules/.cache/cfs-package');
  const licences = placeProgram(npm, program, { architecture, version, cache });
  /** @type {typeof import('../src/cli/manual.ts')} */
  const { MANUAL_PAGES } = await import(built('cli/manual.js'));
  /** @type {typeof import('../src/cli/completion/completion.ts')} */
  const { completionOf } = await import(built('cli/completion/completion.js'));
  /** @type {typeof import('../src/cli/commands/service.ts')} */
  const { packagedUnit } = await import(built('cli/commands/service.js'));
  const manuals = Object.fromEntries(Object.entries(MANUAL_PAGES).map(([name, make]) => [name, make(version)]));
  const outside = systemFiles({
    manuals,
    completion: completionOf,
    unit: packagedUnit,
    licences,
    changelog: readFileSync(join(root, 'CHANGELOG.md'), 'utf8'),
  });
  for (const [path, { bytes, link }] of Object.entries(outside)) {
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    if (link === undefined) writeFileSync(join(tree, path), bytes ?? '');
    else symlinkSync(link, join(tree, path));
  }
  const contents = contentsOf(tree);
  const elf = Object.entries(contents).filter(([path]) => /\/bin\/node$|\.node$/.test(path));
  const packed = { version, architecture: debianArchitecture };
  buildPackage('cfs-mount', tree, {
    control: controlFile({
      ...{ ...packed, installedKiB: kibibytes(contents), description: manifest.description },
      depends: dependenciesOf(elf.map(([, each]) => each)),
    }),
    postinst: maintainerScript('postinst', version),
    postrm: maintainerScript('postrm', version),
  });
  const missing = missingForDesktop(architecture);
  if (missing !== null) console.error(`cfs-desktop is not built: ${missing}`);
  else {
    const desktop = join(work, 'desktop');
    placeDesktop(desktop, work);
    const installedKiB = kibibytes(contentsOf(desktop));
    buildPackage('cfs-desktop', desktop, { control: desktopControlFile({ ...packed, installedKiB }) });
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}

/**
 * Bytes of all files but links, by their paths.
 *
 * @param {string} tree
 */
function contentsOf(tree) {
  return Object.fromEntries(
    filesOf(tree)
      .filter((path) => !lstatSync(join(tree, path)).isSymbolicLink())
      .map((path) => [path, readFileSync(join(tree, path))]),
  );
}

/** @param {Readonly<Record<string, Buffer>>} contents */
function kibibytes(contents) {
  return Math.ceil(Object.values(contents).reduce((sum, each) => sum + each.length, 0) / 1024);
}

/**
 * Builds the package of a tree, places it where the user wants it, and prints its path.
 *
 * @param {string} name
 * @param {string} tree
 * @param {Readonly<Record<string, string>>} control the files of its control part but md5sums
 */
function buildPackage(name, tree, control) {
  const sums = md5sums(contentsOf(tree));
  mkdirSync(join(tree, 'DEBIAN'));
  for (const [file, text] of Object.entries({ ...control, md5sums: sums }))
    writeFileSync(join(tree, 'DEBIAN', file), text);
  const seconds = commitSeconds();
  settle(tree, seconds);
  const file = join(work, `${name}_${version}_${debianArchitecture}.deb`);
  // One thread: the division of the data by xz must not depend on the machine.
  const how = flags.fast ? ['-Zgzip', '-z1'] : ['-Zxz', '--threads-max=1'];
  execFileSync('dpkg-deb', ['--root-owner-group', ...how, '--build', tree, file], {
    env: { ...process.env, SOURCE_DATE_EPOCH: String(seconds) },
    stdio: ['ignore', 'ignore', 2],
  });
  mkdirSync(flags.out, { recursive: true });
  const out = join(resolve(flags.out), basename(file));
  rmSync(out, { force: true });
  copyFileSync(file, out);
  console.log(out);
}

/** SOURCE_DATE_EPOCH, or the time of the commit. */
function commitSeconds() {
  const given = process.env.SOURCE_DATE_EPOCH;
  return Number(given ?? execFileSync('git', ['log', '-1', '--format=%ct'], { cwd: root, encoding: 'utf8' }).trim());
}

/**
 * Modes and times that do not depend on the machine.
 *
 * @param {string} path
 * @param {number} seconds
 */
function settle(path, seconds) {
  const found = lstatSync(path);
  if (found.isDirectory()) for (const name of readdirSync(path)) settle(join(path, name), seconds);
  if (!found.isSymbolicLink()) chmodSync(path, found.isDirectory() || isProgram(path) ? 0o755 : 0o644);
  lutimesSync(path, seconds, seconds);
}

/** @param {string} path */
function isProgram(path) {
  return /\/package\/bin\/[^/]+$|\/prebuilds\/[^/]+\/cfs-[a-z]+$|\/libexec\/cfs-sidebar$|\/DEBIAN\/(postinst|postrm)$/.test(
    path,
  );
}
