import { createHash } from 'node:crypto';
import { CallError, type FileApi, O_CREAT, O_RDWR, O_TRUNC, O_WRONLY } from '../conformance/file-api.ts';
import type { SeededRandom } from '../store/seeded-random.ts';

const FOLDERS = ['d', 'e', 'd/e'];
const NAMES = ['a', 'b', 'c', 'f', 'g'];
/** Inline, a block and a bit, several blocks; the shortest still tells one save from every other. */
const SIZES = [12, 900, 17_000, 140_000, 400_000];
/** The mount died under the call. */
const DEAD = new Set(['ENOTCONN', 'ECONNABORTED', 'ECONNREFUSED', 'EIO']);

/**
 * One writer's view of what a mount has promised: what returned 0 is certain, and only what the last call touched, which never
 * returned, is open. Compared with what the next life of the mount shows.
 */
export class CrashModel {
  /** Path → SHA-256; folders end in `/`. As `treeDigests`. */
  readonly #certain = new Map<string, string>();
  readonly #random: SeededRandom;
  /** Paths of which the call that never returned may have made anything. */
  #open: readonly string[] = [];
  #count = 0;
  /** What was done, to be shown beside a failure. */
  readonly trace: string[] = [];

  constructor(random: SeededRandom) {
    this.#random = random;
  }

  get tree(): ReadonlyMap<string, string> {
    return this.#certain;
  }

  get acknowledged(): number {
    return this.#count;
  }

  /** Works until `stepsMax` calls have returned or the mount is dead. @returns whether it is alive */
  async work(api: FileApi, stepsMax: number): Promise<boolean> {
    for (const folder of FOLDERS) {
      if (this.#certain.has(`${folder}/`)) continue;
      if (
        !(await this.#do(
          api,
          'mkdir',
          [`${folder}/`],
          (call) => call.mkdir(folder),
          () => this.#certain.set(`${folder}/`, 'folder'),
        ))
      )
        return false;
    }
    for (let step = 0; step < stepsMax; step++) if (!(await this.#step(api))) return false;
    return true;
  }

  /** What is wrong with a tree that was found; what was open is settled by it. */
  settle(found: ReadonlyMap<string, string>): string[] {
    const wrong: string[] = [];
    for (const path of this.#open) {
      const digest = found.get(path);
      if (digest === undefined) this.#certain.delete(path);
      else this.#certain.set(path, digest);
    }
    this.#open = [];
    for (const [path, digest] of this.#certain) {
      if (found.get(path) !== digest) wrong.push(found.has(path) ? `other bytes: ${path}` : `lost: ${path}`);
    }
    for (const path of found.keys()) if (!this.#certain.has(path)) wrong.push(`too much: ${path}`);
    return wrong;
  }

  #step(api: FileApi): Promise<boolean> {
    const files = [...this.#certain.keys()].filter((path) => !path.endsWith('/'));
    const path = this.#path();
    const bytes = Buffer.alloc(this.#random.pick(SIZES), `${++this.#count} ${path}|`);
    const digest = createHash('sha256').update(bytes).digest('hex');
    const what = this.#random.below(10);
    const file = files.length === 0 ? path : this.#random.pick(files);
    if (what < 4) {
      return this.#do(
        api,
        'save',
        [path],
        (call) => put(call, path, bytes, 0),
        () => this.#certain.set(path, digest),
      );
    }
    if (what < 6) {
      // As editors save: nothing but the temporary file is ever in between.
      const draft = `${path}~${this.#count}`;
      return this.#do(
        api,
        'replace',
        [path, draft],
        async (call) => {
          await put(call, draft, bytes, 0);
          await call.rename(draft, path);
        },
        () => this.#certain.set(path, digest),
      );
    }
    if (files.length === 0) return Promise.resolve(true);
    if (what < 8)
      return this.#do(
        api,
        'patch',
        [file],
        (call) => patch(call, file, this.#count),
        (after) => this.#certain.set(file, after),
      );
    if (what < 9) {
      if (file === path) return Promise.resolve(true);
      return this.#do(
        api,
        'rename',
        [file, path],
        (call) => call.rename(file, path),
        () => {
          this.#certain.set(path, this.#certain.get(file) ?? '');
          this.#certain.delete(file);
        },
      );
    }
    return this.#do(
      api,
      'unlink',
      [file],
      (call) => call.unlink(file),
      () => this.#certain.delete(file),
    );
  }

  /** One call of the writer, which is certain when it returned and open when the mount died under it. */
  async #do<T>(
    api: FileApi,
    what: string,
    touched: readonly string[],
    call: (api: FileApi) => Promise<T>,
    returned: (value: T) => void,
  ): Promise<boolean> {
    this.#open = touched;
    const told = `${new Date().toISOString().slice(14, 23)} #${this.#count} ${what} ${touched.join(' ')}`;
    try {
      const value = await call(api);
      this.#open = [];
      returned(value);
      this.trace.push(told);
      return true;
    } catch (error) {
      this.trace.push(`${told} → ${(error as Error).message}`);
      if (error instanceof CallError && DEAD.has(error.errno)) return false;
      throw error;
    }
  }

  #path(): string {
    const folder = this.#random.pick(['', ...FOLDERS]);
    const name = this.#random.pick(NAMES);
    return folder === '' ? name : `${folder}/${name}`;
  }
}

async function put(api: FileApi, path: string, bytes: Uint8Array, offset: number): Promise<void> {
  const fd = await api.open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o644);
  await api.write(fd, offset, bytes);
  await api.close(fd);
}

/** Changes some bytes in the middle. @returns the digest of the whole file as it is then */
async function patch(api: FileApi, path: string, count: number): Promise<string> {
  const fd = await api.open(path, O_RDWR);
  try {
    const { sizeBytes } = await api.fstat(fd);
    const before = Buffer.from(await api.read(fd, 0, sizeBytes));
    const mark = Buffer.from(`patched ${count}`);
    const offset = Math.floor(sizeBytes / 2);
    await api.write(fd, offset, mark);
    const after = Buffer.alloc(Math.max(sizeBytes, offset + mark.byteLength));
    after.set(before);
    after.set(mark, offset);
    return createHash('sha256').update(after).digest('hex');
  } finally {
    await api.close(fd);
  }
}
