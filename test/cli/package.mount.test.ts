import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFailed, onTestFinished, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { LET_GO_OF_OTHERS } from '../harness/mount-namespace.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { PROJECT } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/** What `npm pack` makes: what is in it, and that a machine with Node and fuse3 needs nothing else. */

interface Pack {
  readonly filename: string;
  readonly size: number;
  readonly files: readonly { readonly path: string; readonly size: number; readonly mode: number }[];
}

/** All that may be in it: programs, the built addons, documents. */
const ALLOWED = [
  /^bin\/cfs(-mount)?$/,
  /^(package\.json|npm-shrinkwrap\.json|README\.md|LICENSE|CHANGELOG\.md|SECURITY\.md)$/,
  /^dist\/[a-z]+\/([a-z0-9-]+\/)?[a-z0-9-]+\.js(\.map)?$/,
  /^dist\/mount\/(mounting-process|mount-worker)(\.bundle)?\.cjs(\.map)?$/,
  /^dist\/mount\/licences\.txt$/,
  /^dist\/cli\/(cfs|cfs-mount|chunk-[a-z0-9-]+)\.cjs(\.map)?$/,
  /^dist\/web\/page\/(index\.html|page\.css|vendor\.css|icon\.svg|licences\.txt)$/,
  /^dist\/types\/[a-z]+\/[a-z-]+\.d\.ts$/,
  /^docs\/([a-z-]+\.md|adr\/\d{4}-[a-z0-9-]+\.md)$/,
  /^man\/[a-z-]+\.1$/,
  /^native-deps\/fuse-kernel\/prebuilds\/linux-(x64|arm64)\/(fuse-kernel\.node|cfs-announcer|cfs-keeper)$/,
];
/** All that the package is made of. */
const SOURCES =
  '.npmrc package.json package-lock.json tsconfig.json tsconfig.build.json tsconfig.types.json tsconfig.page.json README.md LICENSE CHANGELOG.md SECURITY.md bin docs native-deps scripts src';
/** The public API: docs/api.md has a runnable example of each. */
const ENTRY_POINTS = ['mount', 'client', 'server'];
/** The bundles of both threads contain their packages (ADR 23), about 0.3 MiB of it. */
const PACKED_BYTES_MAX = 2.5 * 1024 ** 2;
const INSTALLED_KIB_MAX = 40 * 1024;

/** What code loads, relative to its file, or to the module of a bundle that it was before (scripts/bundle.mjs). */
const LOADS =
  /(?:\bfrom|\bimport|\bimport\(|\brequire\(|new URL\()\s*["'](\.[^"']+\.c?js)["'](?:, placeInDist\("([^"]+)"\))?/g;

let home: CommandHome;
let pack: Pack;

beforeAll(async () => {
  home = new CommandHome();
  // In a copy: what it builds would take dist/ away from those who run on it.
  const script = `
    mkdir "$2"
    (cd "$1"; cp -R ${SOURCES} "$2")
    rm -rf "$2/native-deps/fuse-kernel/build" "$2/native-deps/fuse-kernel/prebuilds"
    ln -s "$1/node_modules" "$2"
    cd "$2"
    exec npm pack --silent --json --pack-destination "$3"`;
  const argv = ['sh', '-euc', script, 'sh', PROJECT, home.path('checkout'), home.directory];
  const { stdout } = await runCommand(argv, { timeoutMs: 180_000 });
  [pack] = JSON.parse(stdout) as [Pack];
}, 200_000);

afterAll(() => home.dispose());

test('the package holds what is needed, and nothing else', () => {
  const paths = pack.files.map(({ path }) => path);

  expect(paths.filter((path) => !ALLOWED.some((pattern) => pattern.test(path)))).toEqual([]);
  for (const needed of [
    'dist/cli/cfs-mount.js',
    'dist/cli/cfs.js',
    'dist/cli/cfs-mount.cjs',
    'dist/cli/cfs.cjs',
    'dist/mount/mounting-process.cjs',
    'dist/mount/mount-worker.cjs',
    'dist/mount/mounting-process.bundle.cjs',
    'dist/mount/mount-worker.bundle.cjs',
    'dist/web/page/page.js',
    'dist/web/page/licences.txt',
  ])
    expect(paths).toContain(needed);
  for (const needed of ['bin/cfs', 'bin/cfs-mount', 'man/cfs.1', 'man/cfs-mount.1', 'LICENSE', 'README.md'])
    expect(paths).toContain(needed);
  expect(paths).toContain(`native-deps/fuse-kernel/prebuilds/linux-${process.arch}/fuse-kernel.node`);
  expect(pack.size).toBeLessThan(PACKED_BYTES_MAX);
  // A source that is gone must not live on as a file that an earlier build left.
  const orphans = paths
    .filter((path) => /^dist\/.*\.js$/.test(path) && !path.startsWith('dist/web/page/'))
    .filter((path) => !existsSync(join(PROJECT, path.replace(/^dist\/(.*)\.js$/, 'src/$1.ts'))));
  expect(orphans).toEqual([]);
});

test('every module of the package finds the modules that it loads', () => {
  const packed = new Set(pack.files.map(({ path }) => path));
  const programs = ['dist/cli/cfs.js', 'dist/cli/cfs-mount.js', 'dist/cli/cfs.cjs', 'dist/cli/cfs-mount.cjs'];
  const todo = [...programs, ...ENTRY_POINTS.map((name) => `dist/api/${name}.js`)];
  const loaded = new Set<string>();
  for (let path = todo.pop(); path !== undefined; path = todo.pop()) {
    if (loaded.has(path) || !/\.c?js$/.test(path)) continue;
    loaded.add(path);
    const code = readFileSync(join(PROJECT, path), 'utf8');
    for (const [, name, place] of code.matchAll(LOADS))
      todo.push(join(place === undefined ? dirname(path) : join('dist', dirname(place)), name as string));
  }

  expect(loaded.size).toBeGreaterThan(200);
  expect([...loaded].filter((path) => !packed.has(path))).toEqual([]);
});

test.each(['mounting-process', 'mount-worker'])(
  'the thread %s is one file, which finds the files that it names and has a map to src/',
  (name) => {
    const place = join(PROJECT, 'dist/mount');
    const code = readFileSync(join(place, `${name}.bundle.cjs`), 'utf8');
    const map = JSON.parse(readFileSync(join(place, `${name}.bundle.cjs.map`), 'utf8')) as { sources: string[] };

    expect(code).not.toMatch(/\brequire\(["']\.{1,2}\//);
    expect(code).not.toMatch(/\bimport\(/);
    const named = [...code.matchAll(/new URL\("([^"]+)", require\("url"\)\.pathToFileURL\(__filename\)/g)].map(
      ([, path]) => path as string,
    );
    expect(named.length).toBeGreaterThan(0);
    for (const path of named) expect(existsSync(join(place, path)), path).toBe(true);
    expect(map.sources.length).toBeGreaterThan(50);
    const foreign = map.sources.filter(
      (path) => !/^\.\.\/\.\.\/(src|node_modules)\//.test(path) || !existsSync(join(place, path)),
    );
    expect(foreign).toEqual([]);
  },
);

/** Every package that is installed has the version of the lock file, and no install script of one has built anything. */
function expectLockedVersions(installed: string): void {
  const { packages } = JSON.parse(readFileSync(join(PROJECT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string }>;
  };
  const places = Object.keys(packages).filter((place) => place !== '' && existsSync(join(installed, place)));
  expect(places.length).toBeGreaterThan(30);
  for (const place of places) {
    const { version } = JSON.parse(readFileSync(join(installed, place, 'package.json'), 'utf8')) as { version: string };
    expect(`${place} ${version}`).toBe(`${place} ${packages[place]?.version}`);
    expect(existsSync(join(installed, place, 'build/Release')), `${place} was built`).toBe(false);
  }
  const hidden = JSON.parse(readFileSync(join(installed, 'node_modules/.package-lock.json'), 'utf8')) as {
    packages: Record<string, unknown>;
  };
  expect(Object.keys(hidden.packages).filter((place) => !(place in packages))).toEqual([]);
}

test('installed from that file alone, the programs sign in, mount, push and end', { timeout: 240_000 }, async () => {
  const [prefix, installed] = [home.path('prefix'), home.path('lib')];
  for (const directory of [prefix, installed]) mkdirSync(directory);
  // The commands of the README. npm takes the versions of a lock file only where it installs into its directory.
  const install = `
    tar -xzf "$1" --strip-components=1 -C "$2"
    cd "$2"
    npm ci --omit=dev --ignore-scripts --prefer-offline
    npm install -g --prefix "$3" .`;
  const packed = join(home.directory, pack.filename);
  await runCommand(['sh', '-euc', install, 'sh', packed, installed, prefix], { timeoutMs: 180_000 });
  expect(existsSync(join(prefix, 'share/man/man1/cfs-mount.1'))).toBe(true);
  expectLockedVersions(installed);
  const { stdout: kib } = await runCommand(['du', '-sk', '--apparent-size', installed]);
  expect(Number(kib.split('\t')[0])).toBeLessThanOrEqual(INSTALLED_KIB_MAX);
  const server = await ReferenceServer.start();
  try {
    const { account } = server;
    const env = {
      ...home.env,
      // No compiler, no npm, no checkout: the programs by their names.
      PATH: `${join(prefix, 'bin')}:${join(process.execPath, '..')}:/usr/bin:/bin`,
      CFS_URL: account.url,
      CFS_USERNAME: account.username,
      CFS_PASSWORD: account.password,
      CFS_APPLICATION: account.application,
      CFS_ACCESS_KEY_ID: account.accessKeyId,
      CFS_PRIVATE_ACCESS_KEY: account.privateAccessKey,
    };
    onTestFailed(() => console.error(server.log));
    mkdirSync(home.path('Cloud'));
    const script = `
      trap 'cfs umount --now "$1" > /dev/null 2>&1 || true' EXIT
      cfs login
      cfs-mount "$1"
      echo hello > "$1/file"
      cfs sync --wait
      # Without the other mounts of this machine, which may be dead, and busy while somebody looks at them.
      if [ "$(id -u)" = 0 ]; then
        unshare --mount sh -euc 'kept=$1; ${LET_GO_OF_OTHERS}; exec cfs doctor' sh "$1"
      else
        cfs doctor
      fi
      cfs umount "$1"`;
    const { stdout } = await runCommand(['sh', '-euc', script, 'sh', home.path('Cloud')], { env, timeoutMs: 60_000 });

    expect(stdout).toContain('nothing is wrong');
    expect([...(await server.reader.digests()).keys()]).toContainEqual(expect.stringMatching(/file$/));
    expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(home.path('Cloud'));
  } finally {
    await server.dispose();
  }
});

test('a program that imports the packed file compiles against its types and runs, as in docs/api.md', {
  timeout: 180_000,
}, async () => {
  const own = new CommandHome(); // the account of the test above is not its account
  onTestFinished(() => own.dispose());
  const consumer = own.path('consumer');
  const installed = join(consumer, 'node_modules/cfs-mount');
  mkdirSync(installed, { recursive: true });
  symlinkSync(join(PROJECT, 'node_modules/@types'), join(consumer, 'node_modules/@types'));
  const examples = [...readFileSync(join(PROJECT, 'docs/api.md'), 'utf8').matchAll(/^```ts (\S+)\n(.*?)^```$/gms)];
  expect(examples.map(([, name]) => name).sort()).toEqual(ENTRY_POINTS.map((name) => `${name}.mts`).sort());
  for (const [, name, code] of examples) writeFileSync(join(consumer, name as string), code as string);
  const compilerOptions = { strict: true, module: 'nodenext', target: 'es2022', types: ['node'], outDir: 'out' };
  writeFileSync(join(consumer, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
  const script = `
    cd "$3"
    tar -xzf "$1" --strip-components=1 -C node_modules/cfs-mount
    ln -s "$2/node_modules" node_modules/cfs-mount
    node "$2/node_modules/typescript/bin/tsc" -p .
    mkdir Cloud
    mkfifo line
    node out/server.mjs > line & server=$!
    trap 'kill $server; node node_modules/cfs-mount/dist/cli/cfs.js umount --now Cloud > /dev/null 2>&1 || true' EXIT
    read -r SERVICE < line
    export SERVICE
    node out/client.mjs
    keys() { node -p "const { url, keys } = JSON.parse(process.env.SERVICE); $1"; }
    CFS_USERNAME=me@example.com CFS_PASSWORD='correct horse' CFS_APPLICATION=$(keys keys.application) \\
      CFS_ACCESS_KEY_ID=$(keys keys.accessKeyId) CFS_PRIVATE_ACCESS_KEY=$(keys keys.privateAccessKey) \\
      node node_modules/cfs-mount/dist/cli/cfs.js login "$(keys url)" > /dev/null
    node out/mount.mjs
    node --input-type=module -e "await import('cfs-mount/dist/mount/launch.js')" 2>&1 | grep -q ERR_PACKAGE_PATH_NOT_EXPORTED
    echo 'the rest is private'`;
  const argv = ['sh', '-euc', script, 'sh', join(home.directory, pack.filename), PROJECT, consumer];
  const { stdout } = await runCommand(argv, { env: own.env, timeoutMs: 150_000 });

  expect(stdout.split('\n')).toEqual([
    "[ 'From the client' ]",
    "1 [ 'From the client', 'hello.txt' ] 0",
    'mounted',
    'uploaded',
    'the rest is private',
    '',
  ]);
  expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(consumer);
});
