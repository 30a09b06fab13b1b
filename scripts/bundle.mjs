// Bundles each program into CommonJS files. To find, read and compile 250 modules one by one takes a quarter of the start of a mount, and an ES
// import of `node:http` reads every export, which loads a WebSocket (ADR 23).
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { licencesOf } from './package/licences.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const CHUNK = 'chunk-';

const shared = {
  platform: /** @type {const} */ ('node'),
  tsconfig: `${root}tsconfig.json`,
  /** @type {(level: string, log: { message: string }) => never} */
  onLog(level, log) {
    throw new Error(`${level}: ${log.message}`);
  },
};
/** The packages inside the bundles, by their paths. @type {Set<string>} */
const packages = new Set();
/** Packages outside of the bundles of both threads, and the package of ours through which each is found: this one has an `eval` with names of its module. */
const OUTSIDE = { 'ordered-binary': 'lmdb' };
/** Modules of Node that a start of a mount does not need: a bundle of a thread loads them with their first use. */
const LATE = ['child_process', 'crypto', 'dns', 'readline', 'tty'];
/** The same for commands. */
const LATE_IN_PROGRAMS = [
  'child_process',
  'dns',
  'fs/promises',
  'readline',
  'readline/promises',
  'timers/promises',
  'tty',
];
/** Packages that every command loads. */
const INSIDE_PROGRAMS = ['commander', 'smol-toml'];
/** What `cfs status` loads is one file, with all that it imports: to find and read 20 takes longer than to compile them. */
const STATUS = /\/src\/cli\/(?:cfs-program|commands\/status)\.ts$/;
/** @type {import('rolldown').OutputOptions} */
const written = {
  format: 'cjs',
  sourcemap: true,
  sourcemapExcludeSources: true,
  comments: false, // the source maps lead to src/, which has them
};

/**
 * Around the bundle of a thread. As a script, which `compiled-program.ts` runs, it is a function; as a module of Node, it calls it. To put it around
 * the bundle at each start would copy that.
 */
const WORDS = 'exports, require, module, __filename, __dirname';
const AROUND = [`((run) => typeof module === "undefined" ? run : run(${WORDS}))(function (${WORDS}) { `, '\n})\n'];

// Each of the two threads of the mounting process is one file.
const mount = { from: `${root}src/mount/`, to: `${root}dist/mount/` };
await bundleInto(`${mount.to}mounting-process.bundle.cjs`, `${root}src/cli/mounting-main.ts`);
await bundleInto(`${mount.to}mount-worker.bundle.cjs`, `${mount.from}mount-worker.ts`);
// Before the modules of Node that the bundle loads, which come before all modules of ours.
const flagsBack = await rolldown({ ...shared, input: `${mount.from}flags-back.ts` });
const [{ code: banner }] = (await flagsBack.generate({ format: 'iife', comments: false })).output;
await bundleInto(`${mount.to}mounting-process.cjs`, `${mount.from}first-of-process.ts`, banner);
await bundleInto(`${mount.to}mount-worker.cjs`, `${mount.from}first-of-worker.ts`);

// A command loads its own part of `cfs`.
const programs = `${root}dist/cli/`;
for (const name of readdirSync(programs)) if (name.startsWith(CHUNK)) rmSync(programs + name);
const bundle = await rolldown({
  ...shared,
  external: (id) => /^[a-z@]/.test(id) && !INSIDE_PROGRAMS.includes(id), // ours begin with a dot or a slash
  input: { cfs: `${root}src/cli/cfs-main.ts`, 'cfs-mount': `${root}src/cli/cfs-mount-main.ts` },
  plugins: [{ name: 'place of each module', transform: inItsPlace }],
});
const { output } = await bundle.write({
  ...written,
  dir: programs,
  entryFileNames: '[name].cjs',
  codeSplitting: { groups: [{ name: 'status', test: STATUS }] },
  chunkFileNames: `${CHUNK}[name].cjs`,
  intro: `const placeInDist = (path) => require('node:url').pathToFileURL(require('node:path').join(__dirname, '..', path)).href;`,
});

for (const name of readdirSync(programs))
  if (name.endsWith('.cjs')) {
    const source = LATE_IN_PROGRAMS.reduce(loadedLate, readFileSync(programs + name, 'utf8'));
    writeFileSync(programs + name, source);
    finish(programs + name);
  }
for (const part of output) if (part.type === 'chunk') notePackages(part.moduleIds);
const licences = [...packages].sort().flatMap((path) => licencesOf(root, path));
writeFileSync(`${root}dist/mount/licences.txt`, `The .cjs files contain these packages.\n${licences.join('')}`);

/**
 * With the packages that both threads load. Their native halves stay outside.
 * @param {string} file
 * @param {string} input
 * @param {string} banner code before that of the modules
 */
async function bundleInto(file, input, banner = '') {
  const bundle = await rolldown({
    ...shared,
    input,
    external: [/^node:/, 'fuse-native', ...Object.keys(OUTSIDE)],
    plugins: [{ name: 'packages as CommonJS', transform: loadedInPlace }],
  });
  const { output } = await bundle.write({ ...written, file, banner, codeSplitting: false });
  notePackages(output[0].moduleIds);
  let source = readFileSync(file, 'utf8');
  for (const [name, by] of Object.entries(OUTSIDE))
    source = source.replaceAll(
      `require("${name}")`,
      `require("node:module").createRequire(require.resolve("${by}"))("${name}")`,
    );
  for (const name of LATE) source = loadedLate(source, name);
  // Lines stay what they are.
  writeFileSync(file, file.endsWith('.bundle.cjs') ? AROUND.join(source) : source);
  finish(file);
}

/** @param {string} source @param {string} name */
function loadedLate(source, name) {
  const variable = `node_${name.replace('/', '_')}`;
  const late = source
    .replace(`let ${variable} = require("node:${name}");`, '')
    .replaceAll(`${variable}.`, `require("node:${name}").`);
  if (new RegExp(`\\b${variable}\\b`).test(late))
    throw new Error(`node:${name} is used in another way than by its members`);
  return late;
}

/** @param {readonly string[]} modules */
function notePackages(modules) {
  for (const id of modules) {
    const [path] = /node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id.slice(root.length)) ?? [];
    if (path !== undefined) packages.add(path);
  }
}

/**
 * - V8 keeps a source in two bytes for each character if one of them is not in Latin-1. They are all in strings and patterns.
 * - The bundler loads a module of Node even if nothing of it is left in the bundle: `cfs status` loaded `node:crypto`.
 * @param {string} file
 */
function finish(file) {
  const source = readFileSync(file, 'utf8')
    .replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .replace(/^require\("node:[a-z_/]+"\);$/gm, ''); // lines stay what they are
  writeFileSync(file, source);
}

/**
 * `commonJs('package')` of `base/common-js.ts` is a `require` that the bundler can follow. undici does without HTTP/2 where Node has none: we
 * use none, and loading it costs 25 ms.
 * @param {string} code
 * @param {string} id
 */
function loadedInPlace(code, id) {
  if (id.endsWith('/undici/lib/dispatcher/client-h2.js'))
    return {
      code: replaced(code, "http2 = require('node:http2')", "throw new Error('HTTP/2 is not used')", id),
      map: null,
    };
  if (id.endsWith('/pino/pino.js'))
    // For transports, of which we use none. It makes V8 look for the lines of the whole bundle.
    return {
      code: replaced(code, 'normalize(instance, caller(), ...args)', 'normalize(instance, [], ...args)', id),
      map: null,
    };
  if (id.endsWith('/sonic-boom/index.js') || id.endsWith('/thread-stream/index.js'))
    return {
      code: replaced(code, "= require('assert')", "= (...words) => require('assert')(...words)", id),
      map: null,
    };
  if (id.endsWith('/node_modules/lmdb/native.js')) {
    // A buffer of 16 MiB for values, of which V8 counts all: it is touched where a value needs it.
    const set = 'globalBuffer = externals.globalBuffer;';
    const first = `if (globalBuffer === undefined) keepUncounted(externals.globalBuffer.buffer); ${set}`;
    const by = `import { keepUncounted } from ${JSON.stringify(`${root}src/base/native.ts`)}; `;
    code = by + replaced(code, set, first, id);
  }
  if (id.includes('/node_modules/lmdb/')) {
    // lmdb finds its native half from its own folder. One of its files has a `require` of its own.
    const lmdb = "process.getBuiltinModule('node:module').createRequire(__filename).resolve('lmdb')";
    const own = `process.getBuiltinModule('node:url').pathToFileURL(${lmdb}).href`;
    return { code: code.replaceAll('import.meta.url', own), map: null };
  }
  if (id.endsWith('/msgpackr-extract/index.js')) {
    // So does msgpackr, by this package.
    const from = "require('node:module').createRequire(__filename).resolve('msgpackr')";
    const own = `require('node:path').dirname(require('node:module').createRequire(${from}).resolve('msgpackr-extract'))`;
    return { code: replaced(code, '__dirname', own, id), map: null };
  }
  if (id.endsWith('/node-gyp-build-optional-packages/node-gyp-build.js'))
    // Our addon needs glibc, too. To find it out, this package would load and read nine files.
    return { code: replaced(code, "(isMusl(platform) ? 'musl' : 'glibc')", "'glibc'", id), map: null };
  if (!code.includes("commonJs('")) return null;
  return { code: code.replaceAll("commonJs('", "require('"), map: null };
}

/** @param {string} code @param {string} part @param {string} by @param {string} id */
function replaced(code, part, by, id) {
  if (!code.includes(part)) throw new Error(`${id} has another version than expected: it lacks ${part}`);
  return code.replace(part, by);
}

/**
 * A module of a bundle finds files beside itself as it does in dist/ without one.
 * @param {string} code
 * @param {string} id
 */
function inItsPlace(code, id) {
  if (id.endsWith('/commander/lib/command.js')) {
    const loaded = "const childProcess = require('node:child_process');";
    const spawn = "const childProcess = { spawn: (...words) => require('node:child_process').spawn(...words) };";
    return { code: replaced(code, loaded, spawn, id), map: null };
  }
  if (!code.includes('import.meta.url')) return null;
  const path = id.replace(`${root}src/`, '').replace(/ts$/, 'js');
  return { code: code.replaceAll('import.meta.url', `placeInDist('${path}')`), map: null }; // lines stay what they are
}
