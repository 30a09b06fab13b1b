import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire, Module } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { Script } from 'node:vm';
import { compiledCodeDirectory } from '../config/paths.ts';
import { withUsualLimits } from './v8-limits.ts';

/**
 * The first file of each thread of the mounting process (ADR 23). It runs the bundle beside it, `NAME.bundle.cjs`, with the code that V8
 * compiled at an earlier start. That code is stored some seconds and a minute after the start of the thread, if there was none.
 *
 * A file of compiled code begins with a SHA-256 of the bundle and of the code: V8 checks only its own version, its flags and the length of the source.
 */

/** After a start, and when a program has used the mount: V8 compiles a function at its first call. */
const STORED_AFTER_MS = [3_000, 60_000];
const DIGEST_BYTES = 32;

function run(file: string): void {
  const source = readFileSync(file, 'latin1'); // the bundle is ASCII
  const wrapped = Module.wrap(source);
  const stored = storedCode(file);
  const cachedData = readCode(stored, source);
  const script = new Script(wrapped, { filename: file, ...(cachedData !== null && { cachedData }) });
  if (stored !== null && (cachedData === null || script.cachedDataRejected === true))
    for (const ms of STORED_AFTER_MS) setTimeout(() => writeCode(stored, source, script), ms).unref();
  const module = { exports: {} };
  script.runInThisContext()(module.exports, createRequire(file), module, file, dirname(file));
}

/** One file for each bundle, version of Node and processor. @returns null where this user has no such directory */
function storedCode(file: string): string | null {
  try {
    const name = `${basename(file, '.bundle.cjs')}-${process.version}-${process.arch}`;
    return join(compiledCodeDirectory(process.env), name);
  } catch {
    return null;
  }
}

function readCode(path: string | null, source: string): Buffer | null {
  if (path === null) return null;
  try {
    const stored = readFileSync(path);
    const code = stored.subarray(DIGEST_BYTES);
    return digestOf(source, code).equals(stored.subarray(0, DIGEST_BYTES)) ? code : null;
  } catch {
    return null; // the next start has it
  }
}

function writeCode(path: string, source: string, script: Script): void {
  try {
    const code = withUsualLimits(() => script.createCachedData());
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const unnamed = `${path}.${process.pid}`;
    writeFileSync(unnamed, Buffer.concat([digestOf(source, code), code]), { mode: 0o600 });
    renameSync(unnamed, path);
  } catch {
    // A full or read-only disk: the next start compiles again.
  }
}

function digestOf(source: string, code: Uint8Array): Buffer {
  // Not imported: it would be loaded before the flag below is back at its default.
  return process.getBuiltinModule('node:crypto').createHash('sha256').update(source, 'latin1').update(code).digest();
}

// The main thread's heap has its size by now (`MOUNT_FLAGS`). With the flag, V8 would compile Node's own modules again.
setFlagsFromString('--max-semi-space-size=0');
const bundle = fileURLToPath(import.meta.url).replace(/\.cjs$/, '.bundle.cjs');
if (process.sourceMapsEnabled)
  createRequire(bundle)(bundle); // Node maps the lines of its own modules only
else run(bundle);
