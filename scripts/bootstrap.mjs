// Brings a fresh clone to a runnable state: system packages, npm packages, the kernel addon, dist/.
// Node built-ins only, because no package is installed yet. If nothing is missing, it prints nothing and takes about 60 ms.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CC, install, installCommand, mayInstall, missingPackages } from './system-packages.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
/** `npm test` passes this flag: more packages are useful, and none is required. */
const forTests = process.argv.includes('--for-tests');

/** @param {string} text */
function say(text) {
  console.error(`bootstrap: ${text}`);
}

/** @param {string} text */
function fail(text) {
  say(text);
  process.exit(1);
}

/**
 * @param {string} command
 * @param {string[]} args
 */
function run(command, args, options = {}) {
  // All output goes to standard error: standard output belongs to the command that follows.
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 2, 2], ...options });
  if (status !== 0) fail(`${command} ${args.join(' ')} failed${error ? ` (${error.message})` : ''}`);
}

/**
 * @param {string | URL} path
 * @param {string} value
 */
function stampIs(path, value) {
  return existsSync(path) && readFileSync(path, 'utf8') === value;
}

const dist = join(root, 'dist');
const lock = join(dist, '.bootstrap-lock');

/**
 * A process by its pid and start time (proc(5)), because pids are reused.
 * @param {number} pid
 */
function lifeOf(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // A zombie has ended too. It stays until its parent waits for it; in a container that may never happen.
    return 'ZX'.includes(fields[0]) ? `${pid} has ended` : `${pid} ${fields[19]}`;
  } catch {
    return isListed(pid) ? `${pid}` : `${pid} has ended`;
  }
}

/**
 * For systems without /proc.
 * @param {number} pid
 */
function isListed(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === 'EPERM';
  }
}

const self = lifeOf(process.pid);

/** Takes the lock: of two runs (`npm start` and `npm test`), one would remove the build of the other. @returns whether it was free */
function mayBegin() {
  const own = `${lock}.${process.pid}`;
  try {
    mkdirSync(dist, { recursive: true });
    writeFileSync(own, self);
    linkSync(own, lock);
    return true;
  } catch (error) {
    // A read-only clone is complete, or fails later with a message about the missing part.
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EEXIST') return true;
  } finally {
    rmSync(own, { force: true });
  }
  const owner = textOf(lock);
  // The lock of a killed process is removed.
  if (owner !== null && lifeOf(Number(owner.split(' ')[0])) !== owner) rmSync(lock, { force: true });
  return false;
}

function letGo() {
  if (textOf(lock) === self) rmSync(lock, { force: true });
}

/** @param {string} path */
function textOf(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 19)) fail(`Node 20.19 or newer is needed, this is ${process.version}`);

for (let isAnnounced = false; !mayBegin(); isAnnounced = true) {
  if (!isAnnounced) say(`process ${textOf(lock)?.split(' ')[0] ?? '(just ended)'} sets up this clone: waiting for it`);
  await new Promise((resolve) => setTimeout(resolve, 100));
}

process.once('exit', letGo);

// 1. System packages. Without them `npm test` skips, and counts, the tests that need them.
const packages = missingPackages('start', ...(forTests ? ['test'] : []));
if (packages.length > 0 && mayInstall()) {
  say(`installing ${packages.join(' ')}`);
  if (!install(packages)) fail(`apt-get could not install ${packages.join(' ')}`);
} else if (packages.length > 0) {
  if (!forTests) fail(`please run: ${installCommand(packages)}`);
  say(`tests that need them are skipped: ${packages.join(' ')} (${installCommand(packages)})`);
}

// 2. npm packages: again when the lock file or Node's binary interface changed.
const packagesHash = createHash('sha256')
  .update(readFileSync(join(root, 'package-lock.json')))
  .update(process.versions.modules)
  .digest('hex');
const lockStamp = join(root, 'node_modules/.bootstrap');
// After an `npm ci` by hand, npm's own record of the tree is newer than the lock file.
const installed = join(root, 'node_modules/.package-lock.json');
// Missing after an install with NODE_ENV=production or --omit=dev.
const compiler = join(root, 'node_modules/typescript/bin/tsc');
const byHand =
  !existsSync(lockStamp) &&
  existsSync(compiler) &&
  existsSync(installed) &&
  statSync(installed).mtimeMs > statSync(join(root, 'package-lock.json')).mtimeMs;
if (byHand) writeFileSync(lockStamp, packagesHash);
if (!stampIs(lockStamp, packagesHash) || !existsSync(compiler)) {
  say('installing npm packages (npm ci)');
  // Without install scripts: that of fuse-native fails where libfuse 2 is missing, and all addons are prebuilt.
  run('npm', [
    'ci',
    '--include=dev',
    '--include=optional',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
  ]);
  writeFileSync(lockStamp, packagesHash);
}

// 3. The kernel addon. The build script detects a finished build too, but starting it takes longer than this check.
const native = join(root, 'native-deps/fuse-kernel');
const nativeHash = createHash('sha256').update(`${CC} ${process.arch}`);
for (const path of [
  join(root, 'scripts/build-native.mjs'),
  ...['keeper/keeper.c', 'announcer/announcer.c']
    .map((name) => join(root, 'native-deps', name))
    .filter((path) => existsSync(path)),
  ...readdirSync(native)
    .filter((name) => /\.[ch]$/.test(name))
    .sort()
    .map((name) => join(native, name)),
]) {
  nativeHash.update(`\0${path.slice(root.length)}\0`).update(readFileSync(path));
}
const nativeBuilt = nativeHash.digest('hex');
const nativeStamp = join(native, 'build/.bootstrap');
// Without a compiler `npm test` has no addon: it skips the tests that need it.
const canCompile = !missingPackages('start').some((name) => name === 'gcc' || name === 'libc6-dev');
// On macOS the mount works without it.
if (
  process.platform === 'linux' &&
  (canCompile || !forTests) &&
  (!stampIs(nativeStamp, nativeBuilt) || !existsSync(join(native, 'build/fuse-kernel.node')))
) {
  run(process.execPath, ['scripts/build-native.mjs']);
  writeFileSync(nativeStamp, nativeBuilt);
}

// 4. dist/, by the content of src/: after a checkout the modification times are meaningless.
const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((name) => /\.(ts|html|css|svg)$/.test(name))
  .sort();
// The page of `cfs web` is bundled (scripts/page.mjs).
const compiled = sources.filter((name) => name.endsWith('.ts') && !name.startsWith('web/page/'));
const outputs = new Set([
  ...compiled.map((name) => name.replace(/ts$/, 'js')),
  'web/page/page.js',
  'web/page/vendor.js',
]);
const hash = createHash('sha256');
// The lock file names the packages inside the bundles.
const inputs = ['tsconfig.json', 'tsconfig.build.json', 'package-lock.json', 'scripts/bundle.mjs', 'scripts/page.mjs'];
for (const name of inputs) hash.update(readFileSync(join(root, name)));
for (const name of sources) hash.update(`\0${name}\0`).update(readFileSync(join(root, 'src', name)));
const built = hash.digest('hex');
const buildStamp = join(dist, '.stamp');
const threads = ['mounting-process', 'mount-worker'].flatMap((name) => [
  `mount/${name}.cjs`,
  `mount/${name}.bundle.cjs`,
]);
const bundles = [...threads, 'cli/cfs.cjs', 'cli/cfs-mount.cjs'];
const complete = [...outputs, ...bundles].every((name) => existsSync(join(dist, name)));
if (!complete || !stampIs(buildStamp, built)) {
  say('compiling src/ to dist/');
  rmSync(buildStamp, { force: true });
  // With its own record, the compiler would not write files again that were deleted from dist/.
  if (!complete) rmSync(join(dist, '.tsbuildinfo'), { force: true });
  // `npm test` checks the types; a start skips that.
  run(process.execPath, [compiler, '-p', 'tsconfig.build.json', '--noCheck']);
  run(process.execPath, ['scripts/bundle.mjs']);
  run(process.execPath, ['scripts/page.mjs']);
  // The output of a deleted source must not stay importable.
  for (const name of readdirSync(dist, { recursive: true, encoding: 'utf8' })) {
    if (name.endsWith('.js') && !outputs.has(name))
      for (const left of [name, `${name}.map`]) rmSync(join(dist, left), { force: true });
  }
  writeFileSync(buildStamp, built);
}

// With `npm start`, this process continues for hours.
letGo();
