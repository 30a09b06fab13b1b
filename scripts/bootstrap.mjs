// Brings a fresh clone to a runnable state: system packages, npm packages, the kernel addon, dist/.
// Node built-ins only, because nothing else is there yet. When all is in place it says nothing and takes about 60 ms.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CC, install, installCommand, mayInstall, missingPackages } from './system-packages.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
/** `npm test` calls this with the flag: more packages are of use, and none is necessary. */
const forTests = process.argv.includes('--for-tests');

function say(text) {
  console.error(`bootstrap: ${text}`);
}

function fail(text) {
  say(text);
  process.exit(1);
}

function run(command, args, options = {}) {
  // Whatever a tool prints goes to standard error: standard output belongs to the command that follows.
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 2, 2], ...options });
  if (status !== 0) fail(`${command} ${args.join(' ')} failed${error ? ` (${error.message})` : ''}`);
}

function stampIs(path, value) {
  return existsSync(path) && readFileSync(path, 'utf8') === value;
}

const dist = join(root, 'dist');
const lock = join(dist, '.bootstrap-lock');

/** A process by its number and its start, as proc(5) has it: a number is given again. */
function lifeOf(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // One that nobody has asked for its end yet is there for as long; in a container that may be for ever.
    return 'ZX'.includes(fields[0]) ? `${pid} has ended` : `${pid} ${fields[19]}`;
  } catch {
    return `${pid} has ended`;
  }
}

const self = lifeOf(process.pid);

/** Whether this one may set up now: of two at a time (`npm start`, and `npm test` beside it) one would remove what the other has just made. */
function mayBegin() {
  const own = `${lock}.${process.pid}`;
  try {
    mkdirSync(dist, { recursive: true });
    writeFileSync(own, self);
    linkSync(own, lock);
    return true;
  } catch (error) {
    // A clone that is only read has everything, or fails with what it lacks.
    if (error.code !== 'EEXIST') return true;
  } finally {
    rmSync(own, { force: true });
  }
  const owner = textOf(lock);
  // What was left by one that was killed is nobody's.
  if (owner !== null && lifeOf(owner.split(' ')[0]) !== owner) rmSync(lock, { force: true });
  return false;
}

function letGo() {
  if (textOf(lock) === self) rmSync(lock, { force: true });
}

function textOf(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 19)) fail(`Node 20.19 or newer is needed, this is ${process.version}`);

for (let isTold = false; !mayBegin(); isTold = true) {
  if (!isTold) say(`process ${textOf(lock)?.split(' ')[0] ?? '(just ended)'} sets up this clone: waiting for it`);
  await new Promise((resolve) => setTimeout(resolve, 100));
}

process.once('exit', letGo);

// 1. System packages. `npm test` goes on without them: it skips, and counts, the tests that need them.
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
// Someone who ran npm ci by hand has npm's own record of the tree, younger than the lock file.
const installed = join(root, 'node_modules/.package-lock.json');
// What it would have left out with NODE_ENV=production or --omit=dev is needed here.
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

// 3. The kernel addon. Its script would find by itself that there is nothing to do, but starting it takes longer than this.
const native = join(root, 'native-deps/fuse-kernel');
const nativeHash = createHash('sha256').update(`${CC} ${process.arch}`);
for (const path of [
  join(root, 'scripts/build-native.mjs'),
  ...readdirSync(native)
    .filter((name) => /\.[ch]$/.test(name))
    .sort()
    .map((name) => join(native, name)),
]) {
  nativeHash.update(`\0${path.slice(root.length)}\0`).update(readFileSync(path));
}
const nativeBuilt = nativeHash.digest('hex');
const nativeStamp = join(native, 'build/.bootstrap');
// Without a compiler `npm test` has no addon: the tests of whatever needs it are skipped.
const canCompile = !missingPackages('start').some((name) => name === 'gcc' || name === 'libc6-dev');
if (
  (canCompile || !forTests) &&
  (!stampIs(nativeStamp, nativeBuilt) || !existsSync(join(native, 'build/fuse-kernel.node')))
) {
  run(process.execPath, ['scripts/build-native.mjs']);
  writeFileSync(nativeStamp, nativeBuilt);
}

// 4. dist/, by the content of src/: times lie after a checkout.
const sources = readdirSync(join(root, 'src'), { recursive: true })
  .filter((name) => name.endsWith('.ts'))
  .sort();
const outputs = new Set(sources.map((name) => name.replace(/ts$/, 'js')));
const hash = createHash('sha256');
for (const name of ['tsconfig.json', 'tsconfig.build.json', 'scripts/bundle.mjs'])
  hash.update(readFileSync(join(root, name)));
for (const name of sources) hash.update(`\0${name}\0`).update(readFileSync(join(root, 'src', name)));
const built = hash.digest('hex');
const buildStamp = join(dist, '.stamp');
const complete = [...outputs].every((name) => existsSync(join(dist, name)));
if (!complete || !stampIs(buildStamp, built)) {
  say('compiling src/ to dist/');
  rmSync(buildStamp, { force: true });
  // The compiler's own record says "nothing to do" for files that someone deleted from dist/.
  if (!complete) rmSync(join(dist, '.tsbuildinfo'), { force: true });
  // Types are judged by `npm test`: whoever only wants to start it does not wait for that.
  run(process.execPath, [compiler, '-p', 'tsconfig.build.json', '--noCheck']);
  run(process.execPath, ['scripts/bundle.mjs']);
  // What src/ no longer has must not stay importable.
  for (const name of readdirSync(dist, { recursive: true })) {
    if (name.endsWith('.js') && !outputs.has(name))
      for (const left of [name, `${name}.map`]) rmSync(join(dist, left), { force: true });
  }
  writeFileSync(buildStamp, built);
}

// `npm start` goes on in this process for hours.
letGo();
