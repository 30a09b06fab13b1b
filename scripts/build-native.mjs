// Builds native-deps/fuse-kernel into one .node file with the system's C compiler: `node scripts/build-native.mjs`.
//
// Node-API is ABI-stable and its headers come from the npm package node-api-headers: no node-gyp, no python, no download, and
// the same file loads in every Node from 20 on. A build is skipped when nothing that goes into it has changed.
//   --prebuild   writes prebuilds/<platform>-<arch>/ instead of build/: the npm package brings it for machines without a compiler
//   --target T   builds for linux-x64 or linux-arm64 with Debian's cross compiler, or with CC_FOR_TARGET. `all`: for both; where the
//                cross compiler is missing, it says so, and removes a prebuild of older sources
//   --sanitize   writes build/sanitized/, with AddressSanitizer and UndefinedBehaviorSanitizer
//   --faulty     together with --sanitize: build/faulty/, with mistakes on purpose (faults.c), for the self-test of test-native-asan.mjs
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NAME = 'fuse-kernel';
const folder = fileURLToPath(new URL(`../native-deps/${NAME}/`, import.meta.url));
const prebuild = process.argv.includes('--prebuild');
const sanitize = process.argv.includes('--sanitize');
const faulty = sanitize && process.argv.includes('--faulty');
const host = `${process.platform}-${process.arch}`;
const target = process.argv.includes('--target') ? process.argv[process.argv.indexOf('--target') + 1] : host;
/** The cross compilers as Debian names them, and the machine in the header of what they build: elf(5), e_machine. */
/** @type {Record<string, { compiler: string, machine: number }>} */
const TARGETS = {
  'linux-x64': { compiler: 'x86_64-linux-gnu-gcc', machine: 62 },
  'linux-arm64': { compiler: 'aarch64-linux-gnu-gcc', machine: 183 },
};
if (target === 'all') {
  const others = process.argv.slice(2).filter((word) => word !== '--target' && word !== 'all');
  for (const each of Object.keys(TARGETS)) {
    const { status } = spawnSync(process.execPath, [process.argv[1], ...others, '--target', each], {
      stdio: 'inherit',
    });
    if (status === 0) continue;
    rmSync(join(folder, 'prebuilds', each), { recursive: true, force: true });
    if (each === host) process.exit(status ?? 1);
    console.error(`build-native: the package will have no addon for ${each}`);
  }
  process.exit(0);
}
if (target !== host && !(target in TARGETS)) {
  console.error(`build-native: no target ${target}: ${Object.keys(TARGETS).join(', ')} or all`);
  process.exit(2);
}
const platform = target;
const outFolder = join(
  folder,
  prebuild ? join('prebuilds', platform) : faulty ? 'build/faulty' : sanitize ? 'build/sanitized' : 'build',
);
const out = join(outFolder, `${NAME}.node`);
/** The program that keeps a mount while its process is restarted. A clone without its source has none, as the tests of this script. */
const keeperSource = fileURLToPath(new URL('../native-deps/keeper/keeper.c', import.meta.url));
const keeperOut = join(outFolder, 'cfs-keeper');
const hasKeeper = existsSync(keeperSource) && !sanitize;
/** The program that repeats remote changes in a mount, for inotify(7). */
const announcerSource = fileURLToPath(new URL('../native-deps/announcer/announcer.c', import.meta.url));
/** The programs beside the addon, with their sources. */
const programs = [
  ...(hasKeeper ? [{ source: keeperSource, out: keeperOut }] : []),
  ...(existsSync(announcerSource) && !sanitize
    ? [{ source: announcerSource, out: join(outFolder, 'cfs-announcer') }]
    : []),
];
const stamp = join(outFolder, 'stamp');

if (process.platform !== 'linux') {
  console.error('build-native: the kernel binding is for Linux only; nothing to build');
  process.exit(0);
}

const names = readdirSync(folder).sort();
const sources = names.filter((name) => name.endsWith('.c'));
// As in make(1): a program, perhaps with arguments (`ccache gcc`), or the path of one.
const CC =
  (target === host ? process.env.CC?.trim() || 'cc' : process.env.CC_FOR_TARGET?.trim()) || TARGETS[target].compiler;
const [cc, ...ccWords] = existsSync(CC) ? [CC] : CC.split(/\s+/);
const flags = [
  ...['-std=gnu11', '-Wall', '-Wextra', '-Werror=implicit-function-declaration', '-fPIC', '-shared', '-pthread'],
  ...['-fvisibility=hidden', '-D_FILE_OFFSET_BITS=64', '-DNAPI_VERSION=9', `-DNODE_GYP_MODULE_NAME=fuse_kernel`],
  ...(faulty ? ['-DCFS_FAULTY'] : []),
  // Not unloaded with the Worker that loaded it: its threads may still be in a system call then.
  '-Wl,-z,nodelete',
  ...(sanitize
    ? ['-O1', '-g', '-fno-omit-frame-pointer', '-fsanitize=address,undefined', '-fno-sanitize-recover=undefined']
    : ['-O2', '-g0']),
];
const programFlags = ['-std=gnu11', '-Wall', '-Wextra', '-O2', '-g0', '-pthread'];
const key = createHash('sha256').update([cc, ...ccWords, ...flags, platform].join('\0'));
for (const name of names.filter((each) => /\.[ch]$/.test(each)))
  key.update(name).update(readFileSync(join(folder, name)));
for (const { source } of programs) key.update(programFlags.join('\0')).update(readFileSync(source));
const wanted = key.digest('hex');
if (
  existsSync(out) &&
  programs.every((program) => existsSync(program.out)) &&
  existsSync(stamp) &&
  readFileSync(stamp, 'utf8') === wanted
)
  process.exit(0);

let include;
try {
  include = createRequire(import.meta.url)('node-api-headers').include_dir;
} catch (thrown) {
  const error = /** @type {NodeJS.ErrnoException} */ (thrown);
  if (error.code !== 'MODULE_NOT_FOUND') throw error;
  console.error('build-native: the npm packages are not installed: run npm ci --ignore-scripts first');
  process.exit(1);
}
mkdirSync(outFolder, { recursive: true });
const unfinished = join(outFolder, `${NAME}.${process.pid}.tmp`);
/** @param {{ out: string }} program */
const unfinishedOf = (program) => `${program.out}.${process.pid}.tmp`;
try {
  execFileSync(
    cc,
    [...ccWords, ...flags, '-I', include, ...sources.map((name) => join(folder, name)), '-o', unfinished],
    {
      stdio: 'inherit',
    },
  );
  for (const program of programs)
    execFileSync(cc, [...ccWords, ...programFlags, program.source, '-o', unfinishedOf(program)], { stdio: 'inherit' });
} catch (thrown) {
  const error = /** @type {NodeJS.ErrnoException} */ (thrown);
  if (error.code === 'ENOENT' && target === host && existsSync(join(folder, 'prebuilds', platform, `${NAME}.node`)))
    process.exit(0); // the package contains the addon
  console.error(
    error.code === 'ENOENT'
      ? `build-native: no C compiler (${cc}) here; on Debian and Ubuntu: apt-get install -y ${
          target === host ? 'gcc libc6-dev' : crossPackages(target)
        }`
      : `build-native: ${cc} could not build ${folder} (if headers are missing: apt-get install -y libc6-dev)`,
  );
  process.exit(1);
}
const header = readFileSync(unfinished).subarray(0, 20);
const machine = header.subarray(0, 4).toString('latin1') === '\x7fELF' ? header.readUInt16LE(18) : null;
if (target in TARGETS && machine !== null && machine !== TARGETS[target].machine) {
  rmSync(unfinished);
  console.error(
    `build-native: ${cc} builds for another machine than ${target}; cross-building: --prebuild --target linux-arm64`,
  );
  process.exit(1);
}
// Renamed, not written in place: a process that has the old file loaded keeps it.
renameSync(unfinished, out);
for (const program of programs) renameSync(unfinishedOf(program), program.out);
writeFileSync(stamp, wanted);
console.error(`build-native: built ${out}`);

/** Debian packages of a cross compiler. @param {string} target */
function crossPackages(target) {
  return target === 'linux-arm64'
    ? 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
    : 'gcc-x86-64-linux-gnu libc6-dev-amd64-cross';
}
