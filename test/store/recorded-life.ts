import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { type DiskEvent, eventsOf } from './crashing-disk.ts';
import type { TemporaryStores } from './temporary-store.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const DIST = join(HERE, '../../dist');

/** What a power cut or SIGKILL left, and what had been promised by then. */
export interface Image<P> {
  readonly image: string;
  /** Number of the event after which it came. */
  readonly at: number;
  readonly promised: P;
}

/** Everything that one life of a store did to its disk (`record-writes.c`), in order. */
export interface RecordedLife {
  readonly root: string;
  readonly events: readonly DiskEvent[];
}

/** Runs `program` (arguments: dist, the store's directory) and writes down what it does to its files. */
export function record(stores: TemporaryStores, program: string): RecordedLife {
  const place = stores.directory(tmpdir());
  const root = join(place, 'store');
  mkdirSync(root);
  const shim = join(place, 'record-writes.so');
  execFileSync('cc', ['-shared', '-fPIC', '-O1', '-o', shim, join(HERE, 'record-writes.c'), '-ldl', '-lpthread']);
  const log = join(place, 'log');
  const child = spawnSync(process.execPath, ['--input-type=module', '-e', program, DIST, root], {
    env: { ...process.env, LD_PRELOAD: shim, RECORD_ROOT: root, RECORD_LOG: log, UV_USE_IO_URING: '0' },
    encoding: 'utf8',
    timeout: 150_000,
  });
  expect(child.stderr).toBe('');
  expect(child.status).toBe(0);
  return { root, events: [...eventsOf(readFileSync(log))] };
}

/**
 * Opens images with `examiner` (arguments: dist, a file with the images as JSON) and says what is wrong with each: it writes a line
 * of JSON per image. In a process of its own, because what a damaged LMDB file does to a process is part of the question.
 */
export function examine(
  stores: TemporaryStores,
  examiner: string,
  images: readonly Image<unknown>[],
  after: 'power cut' | 'SIGKILL',
): string[] {
  const problems: string[] = [];
  for (let done = 0; done < images.length; ) {
    const list = join(stores.directory(), 'images.json');
    writeFileSync(list, JSON.stringify(images.slice(done)));
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', examiner, DIST, list], {
      // LMDB tells a power cut from SIGKILL by the boot id, which is the same here: as after another boot.
      env: { ...process.env, ...(after === 'power cut' ? { LMDB_RESTORE: 'safe' } : {}) },
      encoding: 'utf8',
      timeout: 150_000,
    });
    const lines = run.stdout.split('\n').filter((line) => line !== '');
    const answers: unknown[] = lines.map((line) => JSON.parse(line));
    const all =
      run.status === 0 ? answers : [...answers, `the process died (${run.signal ?? run.status}) ${run.stderr}`];
    for (const [index, answer] of all.entries()) {
      const { at, promised, image } = images[done + index] as Image<unknown>;
      if (answer !== null)
        problems.push(`${after} after event ${at}, promised ${JSON.stringify(promised)}: ${String(answer)}`);
      else rmSync(image, { recursive: true });
    }
    done += all.length;
  }
  return problems;
}
