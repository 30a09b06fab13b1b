import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Script } from 'node:vm';
import { crc32 } from 'node:zlib';
import { compiledCodeDirectory } from '../config/paths.ts';
import { withUsualLimits } from './v8-limits.ts';

/**
 * The bundle of a thread of the mounting process (ADR 23), run with the code that V8 compiled at an earlier start. That code is stored some
 * seconds and a minute after the start of the thread, if there was none.
 *
 * A file of compiled code begins with the crc32 of the bundle and that of the code: V8 checks only its own version, its flags and the length of the source.
 */

/** After a start, and when a program has used the mount: V8 compiles a function at its first call. */
const STORED_AFTER_MS = [3_000, 60_000];
const CHECKED_BYTES = 8;

/** Runs the bundle beside the first file of a thread: `NAME.bundle.cjs` beside `NAME.cjs`. It is one function, with the words of a module (`scripts/bundle.mjs`). */
export function runCompiled(firstFile: string): void {
  const bundle = fileURLToPath(firstFile).replace(/\.cjs$/, '.bundle.cjs');
  if (process.sourceMapsEnabled)
    createRequire(bundle)(bundle); // Node maps the lines of its own modules only
  else run(bundle);
}

function run(file: string): void {
  const source = readFileSync(file, 'utf8'); // not as a Buffer, which would be garbage outside of V8's heap (ADR 28)
  const checksum = crc32(source);
  const stored = storedCode(file);
  const cachedData = readCode(stored, checksum);
  const script = new Script(source, { filename: file, ...(cachedData !== null && { cachedData }) });
  if (stored !== null && (cachedData === null || script.cachedDataRejected === true)) {
    for (const ms of STORED_AFTER_MS) setTimeout(() => writeCode(stored, checksum, script), ms).unref();
  }
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

function readCode(path: string | null, bundle: number): Buffer | null {
  if (path === null) return null;
  try {
    const stored = readFileSync(path);
    const code = stored.subarray(CHECKED_BYTES);
    return headOf(bundle, code).equals(stored.subarray(0, CHECKED_BYTES)) ? code : null;
  } catch {
    return null; // the next start has it
  }
}

function writeCode(path: string, bundle: number, script: Script): void {
  try {
    const code = withUsualLimits(() => script.createCachedData());
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const unnamed = `${path}.${process.pid}`;
    writeFileSync(unnamed, Buffer.concat([headOf(bundle, code), code]), { mode: 0o600 });
    renameSync(unnamed, path);
  } catch {
    // A full or read-only disk: the next start compiles again.
  }
}

function headOf(bundle: number, code: Uint8Array): Buffer {
  const head = Buffer.alloc(CHECKED_BYTES);
  head.writeUInt32LE(bundle, 0);
  head.writeUInt32LE(crc32(code), 4);
  return head;
}
