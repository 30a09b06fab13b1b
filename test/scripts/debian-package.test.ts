import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, expect, test } from 'vitest';
import { missingPrograms, testUnless } from '../harness/requirement.ts';
import { textOf } from '../imports.ts';

/** The parts of the Debian package that need no dpkg. `npm run soak -- packages` installs and drives the package itself. */

const script = (name: string) => import(new URL(`../../scripts/package/${name}.mjs`, import.meta.url).href);
const debian = await script('debian-package');
const program = await script('program-tree');
const node = await script('bundled-node');
const { licenceTexts } = await script('licences');
const directory = mkdtempSync(join(tmpdir(), 'cfs-package-'));
afterAll(() => rmSync(directory, { recursive: true }));

function place(path: string, text: string): string {
  mkdirSync(join(directory, path, '..'), { recursive: true });
  writeFileSync(join(directory, path), text);
  return join(directory, path);
}

test('the control file has the fields that dpkg needs, and a description of lines that fit', () => {
  const depends = ['fuse3', 'libc6 (>= 2.34)'];
  const text = debian.controlFile({
    version: '1.2.3-1',
    architecture: 'arm64',
    installedKiB: 7,
    depends,
    description: 'Mounts it: in detail',
  });

  const fields = Object.fromEntries(text.split('\n').map((line: string) => line.split(/: (.*)/s).slice(0, 2)));
  expect(fields).toMatchObject({
    Package: 'cfs-mount',
    Version: '1.2.3-1',
    Architecture: 'arm64',
    'Installed-Size': '7',
    Depends: 'fuse3, libc6 (>= 2.34)',
    Description: 'Mounts it',
  });
  expect(text).toMatch(/^Maintainer: .+ <.+@.+>$/m);
  expect(text.split('\n').filter((line: string) => line.length > 80)).toEqual([]);
  expect(text.endsWith('\n')).toBe(true);
});

test('the dependencies follow from the newest symbol versions that the programs name', () => {
  const elf = (...versions: string[]) => Buffer.from(`\0${versions.join('\0')}\0`);

  expect(
    debian.dependenciesOf([elf('GLIBC_2.2.5', 'GLIBC_2.28', 'GLIBCXX_3.4.21'), elf('GLIBC_2.34', 'GLIBCXX_3.4.9')]),
  ).toEqual(['fuse3', 'libc6 (>= 2.34)', 'libgcc-s1', 'libstdc++6 (>= 5.2)']);
  expect(debian.dependenciesOf([elf('GLIBC_2.28', 'GLIBCXX_3.4.29')])).toContain('libstdc++6 (>= 11)');
  expect(() => debian.dependenciesOf([elf('GLIBCXX_3.4.99')])).toThrow('GLIBCXX_3.4.99');
});

test('programs, manuals, completions of three shells and unit templates lie where the system looks', () => {
  const files = debian.systemFiles({
    manuals: { 'cfs.1': '.TH cfs' },
    completion: (shell: string) => `of ${shell}`,
    unit: (manager: string) => `of the ${manager} manager`,
    licences: 'MIT',
    changelog: 'new',
  });
  const shown = (path: string): string => {
    const { bytes, link } = files[path];
    if (link !== undefined) return link;
    return typeof bytes === 'string' ? bytes : (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
  };

  expect(Object.fromEntries(Object.keys(files).map((path) => [path, shown(path)]))).toEqual({
    '/usr/bin/cfs': '../lib/cfs-mount/current/bin/cfs',
    '/usr/bin/cfs-mount': '../lib/cfs-mount/current/bin/cfs-mount',
    '/usr/share/man/man1/cfs.1.gz': '.TH cfs',
    '/usr/share/bash-completion/completions/cfs': 'of bash',
    '/usr/share/bash-completion/completions/cfs-mount': 'cfs',
    '/usr/share/zsh/vendor-completions/_cfs': 'of zsh',
    '/usr/share/fish/vendor_completions.d/cfs.fish': 'of fish',
    '/usr/share/fish/vendor_completions.d/cfs-mount.fish': 'cfs.fish',
    '/usr/lib/systemd/user/cfs-mount@.service': 'of the user manager',
    '/usr/lib/systemd/system/cfs-mount@.service': 'of the system manager',
    '/usr/share/applications/cfs-web.desktop': expect.stringContaining('\nExec=cfs web --open\n'),
    '/usr/share/icons/hicolor/scalable/apps/cfs-web.svg': expect.stringContaining('<svg '),
    '/usr/share/doc/cfs-mount/copyright': 'MIT',
    '/usr/share/doc/cfs-mount/changelog.gz': 'new',
  });
});

test.each([
  ['dist/mount/mounting-process.cjs', true],
  ['dist/mount/mounting-process.bundle.cjs', true],
  ['dist/mount/mounting-process.bundle.cjs.map', true], // leads from a stack trace to src/
  ['dist/mount/mounting-process.d.ts', false],
  ['bin/node', true],
  ['native-deps/fuse-kernel/prebuilds/linux-arm64/fuse-kernel.node', true],
  ['native-deps/fuse-kernel/prebuilds/linux-x64/fuse-kernel.node', false],
  ['native-deps/fuse-kernel/mount.c', false],
  ['node_modules/lmdb/util/when.js', true],
  ['node_modules/lmdb/dependencies/lmdb/libraries/liblmdb/mdb.c', false],
  ['node_modules/@lmdb/lmdb-linux-arm64/node.napi.glibc.node', true],
  ['node_modules/@lmdb/lmdb-linux-arm64/node.napi.musl.node', false],
  ['node_modules/@lmdb/lmdb-linux-arm64/node.abi127.glibc.node', false],
  ['node_modules/pino/lib/proto.js', true],
  ['node_modules/pino/test/basic.test.js', false],
  ['node_modules/pino/pino.d.ts', false],
  ['docs/semantics.md', false],
])('of the installed npm package, %s is inside: %s', (path, isInside) => {
  expect(program.isProgramFile(path, 'arm64')).toBe(isInside);
});

/** What `lmdb`, for example, imports by a relative path must be inside as well. */
test('every file that a dependency imports from itself is inside', () => {
  const { packages } = JSON.parse(textOf('package-lock.json')) as { packages: Record<string, { dev?: boolean }> };
  const places = Object.entries(packages).filter(([path, { dev }]) => path !== '' && dev !== true);
  const missing: string[] = [];
  let imports = 0;
  for (const [place] of places)
    for (const path of filesOrNone(place).map((name) => join(place, name))) {
      if (!/\.[cm]?js$/.test(path) || !program.isProgramFile(path, process.arch)) continue;
      for (const [, name = ''] of textOf(path).matchAll(/^(?:import|export)\b[^'"\n]*from ['"](\.[^'"]+)['"]/gm)) {
        const target = join(path, '..', name);
        imports += 1;
        if (/\.[a-z]+$/.test(target) && !program.isProgramFile(target, process.arch)) missing.push(`${path}: ${name}`);
      }
    }

  expect(imports).toBeGreaterThan(50);
  expect(missing).toEqual([]);
});

function filesOrNone(place: string): readonly string[] {
  try {
    return program.filesOf(new URL(`../../${place}`, import.meta.url).pathname);
  } catch {
    return []; // for another system
  }
}

test('the packaged manifest has the version of the Debian package, and no scripts', () => {
  const manifest = program.packagedManifest(JSON.parse(textOf('package.json')), '1.2.3-4');

  expect(manifest).toMatchObject({ name: 'cfs-mount', version: '1.2.3-4', type: 'module' });
  expect(manifest).not.toHaveProperty('scripts');
  expect(manifest).not.toHaveProperty('devDependencies');
});

test('Node is pinned by its hashes for both architectures; another file is refused and removed', () => {
  const { version, packages } = node.pinnedNode();
  expect(version).toMatch(/^\d+\.\d+\.\d+$/);
  expect(Object.keys(packages)).toEqual(Object.keys(debian.DEBIAN_ARCHITECTURES));
  for (const { sha256, programSha256 } of Object.values(packages) as Record<string, string>[])
    for (const sum of [sha256, programSha256]) expect(sum).toMatch(/^[0-9a-f]{64}$/);

  const file = place('download', 'something else');
  expect(() => node.expectSum(file, node.sha256('the pinned file'))).toThrow(/pins/);
  expect(() => node.expectSum(place('download', 'the pinned file'), node.sha256('the pinned file'))).not.toThrow();
});

test('the copyright file has the licence text of every package inside, also of nested ones', () => {
  const tree = 'licensed';
  place(`${tree}/LICENSE`, 'ours');
  place(`${tree}/bin/node.LICENSE`, 'of Node and V8');
  place(`${tree}/dist/web/page/licences.txt`, 'text of the page');
  const manifest = (name: string, license: string) =>
    JSON.stringify({ name, version: '1.0.0', license, author: 'Ann' });
  place(`${tree}/node_modules/one/package.json`, manifest('one', 'MIT'));
  place(`${tree}/node_modules/one/LICENSE.md`, 'text of one');
  place(`${tree}/node_modules/one/dependencies/lz4/LICENSE`, 'text of lz4');
  place(`${tree}/node_modules/@a/two/package.json`, manifest('@a/two', 'ISC'));
  place(`${tree}/node_modules/@a/two/node_modules/three/package.json`, manifest('three', 'MIT'));

  const text = licenceTexts(join(directory, tree));

  for (const part of [
    'ours',
    'of Node and V8',
    'text of the page',
    'text of one',
    'text of lz4',
    '@a/two 1.0.0',
    'three 1.0.0',
  ])
    expect(text).toContain(part);
  expect(text).toContain('Copyright (c) Ann\n\nPermission to use, copy, modify');
  expect(text).toContain('Copyright (c) Ann\n\nPermission is hereby granted');
  place(`${tree}/node_modules/four/package.json`, manifest('four', 'Unknown-1.0'));
  expect(() => licenceTexts(join(directory, tree))).toThrow('node_modules/four: its licence Unknown-1.0 has no text');
});

testUnless(missingPrograms('dash'))('the maintainer scripts are sound for dash', () => {
  for (const name of ['postinst', 'postrm'] as const) {
    const text = debian.maintainerScript(name, '1.2.3-1');
    expect(text).not.toMatch(/@[A-Z]+@/);
    expect(text.endsWith('exit 0\n')).toBe(true);
    execFileSync('dash', ['-n', place(name, text)]);
  }
});

/** The first word of each command of a shell script, without the script's own functions and the shell's words. */
function programsOf(script: string): string[] {
  const withoutPatterns = script.replace(/^\s*#.*$/gm, '').replace(/^[\w |]+\)$/gm, '');
  const text = withoutPatterns.replace(/"[^"]*"|'[^']*'/g, 'text');
  const functions = [...text.matchAll(/^(\w+)\(\)/gm)].map(([, name]) => name);
  const commands = text
    .split(/\n|;;?|&&|\|\|?|\$\(|[{}]|\b(?:if|then|else|elif|do|while|case)\b|!/)
    .map((part) => part.trim());
  const words = commands.flatMap((command) => /^(?:text\)\s*)?([a-z[][\w.-]*)(?![\w.-]*[=(])/.exec(command)?.[1] ?? []);
  const ofShell = ['for', 'fi', 'done', 'esac', 'continue', 'return', 'exit', 'echo', '[', 'text', ...functions];
  return [...new Set(words.filter((word) => !ofShell.includes(word)))].sort();
}

test('the maintainer scripts run only these programs, none of which starts a service or uses the network', () => {
  const programs = ['postinst', 'postrm'].flatMap((name) => programsOf(debian.maintainerScript(name, '1.2.3-1')));

  expect([...new Set(programs)].sort()).toEqual(['cp', 'ln', 'mkdir', 'mv', 'readlink', 'rm', 'rmdir']);
  expect(programsOf('if ! systemctl start x; then curl "$1" || true; fi')).toEqual(['curl', 'systemctl', 'true']);
});

const desktop = await script('desktop-package');

testUnless(missingPrograms('pkg-config', 'make') ?? desktop.missingForDesktop(process.arch))(
  'the desktop package has the extension, the sidebar and the emblems, and depends on its own cfs-mount',
  () => {
    const tree = join(directory, 'desktop');
    desktop.placeDesktop(tree, directory);
    const control = desktop.desktopControlFile({ version: '1.2.3-1', architecture: 'amd64', installedKiB: 7 });

    const files = program.filesOf(tree);
    expect(files).toContainEqual(expect.stringMatching(/^usr\/lib\/.*\/nautilus\/extensions-4\/libcfs-nautilus\.so$/));
    expect(files).toEqual(
      expect.arrayContaining([
        'usr/libexec/cfs-sidebar',
        'usr/share/cloud-providers/cfs-mount.ini',
        'usr/share/dbus-1/services/cfs.mount.Sidebar.service',
        'usr/share/doc/cfs-desktop/copyright',
        'usr/share/icons/hicolor/scalable/emblems/emblem-cfs-pending.svg',
      ]),
    );
    expect(control).toMatch(/^Package: cfs-desktop$/m);
    expect(control).toMatch(/^Depends: cfs-mount \(= 1\.2\.3-1\), libc6, libcloudproviders0 \(>= [\d.]+\), /m);
  },
);
