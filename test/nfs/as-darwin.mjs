// Loaded into every process and thread of a mount (NODE_OPTIONS=--import): the parts of macOS that this program can tell. `process.platform`
// is darwin; there is no /proc, no /sys, no /dev/fuse and no addon; the system's commands are those of the folder CFS_TEST_DARWIN.
import childProcess from 'node:child_process';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { basename, join } from 'node:path';

const HIDDEN = /^\/(proc|sys|dev\/fuse)(\/|$)|fuse-kernel\.node$/;
const COMMANDS = new Set(['mount', 'mount_nfs', 'umount', 'diskutil', 'fusermount3']);
const folder = process.env.CFS_TEST_DARWIN ?? '';
const { appendFileSync, existsSync } = fs;

process.env.npm_config_platform = 'linux'; // LMDB's build is that of the real system
Object.defineProperty(process, 'platform', { value: 'darwin' });

function missing(path, syscall) {
  return Object.assign(new Error(`ENOENT: no such file or directory, ${syscall} '${path}'`), {
    code: 'ENOENT',
    errno: -2,
    syscall,
    path,
  });
}

/** A mount without a server: whatever accesses it would hang. */
function isDead(path) {
  return `${path}/`.startsWith(`${join(folder, 'Cloud')}/`) && existsSync(join(folder, 'dead'));
}

/** @param refuse throws or rejects, as the function does */
function hide(object, name, refuse) {
  const original = object[name];
  if (typeof original !== 'function') return;
  object[name] = function (...words) {
    const path = String(words[0]);
    if (isDead(path)) appendFileSync(join(folder, 'wrong'), `${name} ${path}\n`);
    return HIDDEN.test(path) ? refuse(missing(path, name), words) : original.apply(this, words);
  };
  Object.assign(object[name], original); // realpathSync.native
}

const NAMES = [
  'access',
  'lstat',
  'mkdir',
  'open',
  'readdir',
  'readFile',
  'readlink',
  'realpath',
  'stat',
  'statfs',
  'writeFile',
];
for (const name of NAMES) {
  hide(fs, `${name}Sync`, (error) => {
    throw error;
  });
  hide(fs, name, (error, words) => process.nextTick(words.at(-1), error));
  hide(fs.promises, name, (error) => Promise.reject(error));
}
hide(fs, 'existsSync', () => false);
hide(fs, 'createReadStream', (error) => {
  throw error;
});

const { dlopen } = process;
process.dlopen = (module, file, ...rest) => {
  if (HIDDEN.test(file)) throw Object.assign(new Error(`Cannot find module '${file}'`), { code: 'MODULE_NOT_FOUND' });
  return dlopen.call(process, module, file, ...rest);
};

for (const name of ['spawn', 'spawnSync', 'execFile', 'execFileSync']) {
  const original = childProcess[name];
  childProcess[name] = (program, ...words) => {
    const command = basename(program);
    const { env } = words.at(-1) ?? {};
    if (env?.PATH !== undefined) env.PATH = `${folder}:${env.PATH}`; // the guard of a mount is a script
    return original(COMMANDS.has(command) ? join(folder, command) : program, ...words);
  };
}
syncBuiltinESMExports();
