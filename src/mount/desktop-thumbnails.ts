import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { mkdir, mkdtemp, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { constants, setPriority } from 'node:os';
import { dirname, join, sep } from 'node:path';
import type { Logger } from '../base/log.ts';
import { thumbnailersDirectory, thumbnailsDirectory } from '../config/paths.ts';
import type { CachedPicture, ThumbnailCache } from '../fs/thumbnails-ahead.ts';
import { textsOf, withTexts } from './png-text.ts';
import { ENTRY_NAME, otherCommand } from './thumbnailer-entry.ts';

/** The size `large` of the thumbnail specification, pixels. */
const SIDE_PIXELS = 256;
const MAKING_MS_MAX = 10_000;
/** The texts of a cached thumbnail come before its data. */
const START_BYTES = 4_096;
/** Text `Software` of the thumbnails that a mount wrote: `cfs-mount` and the account. */
const SOFTWARE = 'cfs-mount';

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The thumbnail cache of this user's desktop, after the freedesktop thumbnail specification. Thumbnails are made from the small form of the
 * service by the thumbnailer that the desktop uses, in the desktop's sandbox where it is installed (bubblewrap).
 */
export class DesktopThumbnails implements ThumbnailCache {
  readonly #directory: string;
  readonly #account: string;
  readonly #env: Environment;
  readonly #log: Logger;
  /** null: it lies in the mount, or this user has no home. The thread that serves a mount must not access it. */
  readonly #cache: string | null;
  readonly #entry: string;

  /**
   * Made before the directory is mounted.
   *
   * @param deps.account its name from `accountName`
   */
  constructor(deps: { directory: string; account: string; env: Environment; log: Logger }) {
    this.#directory = deps.directory;
    this.#account = deps.account;
    this.#env = deps.env;
    this.#log = deps.log;
    const places = placesOf(deps.env);
    const isInMount = `${places?.cache}${sep}`.startsWith(`${deps.directory}${sep}`);
    this.#cache = places === null || isInMount ? null : places.cache;
    this.#entry = places?.entry ?? '';
  }

  async missing(pictures: readonly CachedPicture[]): Promise<readonly number[]> {
    if (this.#cache === null || (await this.#installed()) === null) return [];
    const missing: number[] = [];
    for (const [at, picture] of pictures.entries()) if (!(await this.#has(picture))) missing.push(at);
    return missing;
  }

  async keep(picture: CachedPicture, jpeg: Uint8Array): Promise<void> {
    try {
      const entry = await this.#installed();
      const command = entry === null ? null : otherCommand(entry);
      if (this.#cache === null || command === null || (await this.#has(picture))) return;
      const png = await this.#made(command, this.#cache, jpeg);
      const texts = {
        'Thumb::URI': this.#uri(picture.path),
        'Thumb::MTime': String(picture.mtimeSec),
        Software: `${SOFTWARE} ${this.#account}`,
      };
      const bytes = withTexts(png, texts);
      if (bytes === null) return;
      const path = this.#place(this.#cache, picture.path);
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      const unfinished = `${path}.${process.pid}`;
      await writeFile(unfinished, bytes, { mode: 0o600 });
      await rename(unfinished, path);
    } catch (err) {
      this.#log.debug({ err }, 'no thumbnail was written ahead');
    }
  }

  async retry(paths: readonly string[]): Promise<readonly string[]> {
    if (this.#cache === null) return [];
    const failed = join(this.#cache, 'fail');
    const noted = new Set<string>();
    for (const program of await readdir(failed).catch(() => [])) {
      for (const path of paths) {
        const mark = join(failed, program, nameOf(this.#uri(path)));
        const isRemoved = await rm(mark).then(
          () => true,
          () => false,
        );
        if (isRemoved) noted.add(path);
      }
    }
    return [...noted];
  }

  /** Our entry, as `cfs desktop install` wrote it; null without one. */
  #installed(): Promise<string | null> {
    return readFile(this.#entry, 'utf8').catch(() => null);
  }

  async #has({ path, mtimeSec }: CachedPicture): Promise<boolean> {
    if (this.#cache === null) return false;
    const texts = await cachedTexts(this.#place(this.#cache, path));
    return texts.get('Thumb::URI') === this.#uri(path) && texts.get('Thumb::MTime') === String(mtimeSec);
  }

  /** @throws if the thumbnailer fails */
  async #made(command: readonly string[], cache: string, jpeg: Uint8Array): Promise<Buffer> {
    await mkdir(cache, { recursive: true, mode: 0o700 });
    const room = await mkdtemp(join(cache, '.cfs-mount-'));
    try {
      const input = join(room, 'picture.jpg');
      const output = join(room, 'thumbnail.png');
      await writeFile(input, jpeg, { mode: 0o600 });
      const values: Readonly<Record<string, string>> = {
        u: fileUri(input),
        i: input,
        o: output,
        s: String(SIDE_PIXELS),
      };
      const words = command.map((word) => word.replace(/%([uios])/g, (_all, code: string) => values[code] ?? ''));
      await run(await sandboxed(words, room, this.#env), this.#env);
      return await readFile(output);
    } finally {
      await rm(room, { recursive: true, force: true });
    }
  }

  #place(cache: string, path: string): string {
    return join(cache, 'large', nameOf(this.#uri(path)));
  }

  #uri(path: string): string {
    return fileUri(join(this.#directory, path));
  }
}

/**
 * Removes the thumbnails that mounts have written, and what a killed mount has left.
 *
 * @param account the name of an account; null: of all
 * @returns their number
 */
export async function removeThumbnails(env: Environment, account: string | null): Promise<number> {
  const cache = thumbnailsDirectory(env);
  const large = join(cache, 'large');
  let removed = 0;
  for (const name of await readdir(large).catch(() => [])) {
    const path = join(large, name);
    const software = (await cachedTexts(path)).get('Software');
    if (software?.startsWith(`${SOFTWARE} `) !== true) continue;
    if (account !== null && software !== `${SOFTWARE} ${account}`) continue;
    await rm(path, { force: true });
    removed++;
  }
  for (const name of await readdir(cache).catch(() => []))
    if (name.startsWith('.cfs-mount-')) await rm(join(cache, name), { recursive: true, force: true });
  return removed;
}

/** The URI that GLib makes of a path (g_filename_to_uri): caches know a file by it. */
export function fileUri(path: string): string {
  const escaped = path.replace(/[^A-Za-z0-9\-._~!$&'()*+,/:=@]/gu, (character) =>
    [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  );
  return `file://${escaped}`;
}

function nameOf(uri: string): string {
  return `${createHash('md5').update(uri).digest('hex')}.png`;
}

/** No texts for a file that does not exist, or is no PNG. */
async function cachedTexts(path: string): Promise<ReadonlyMap<string, string>> {
  let file: Awaited<ReturnType<typeof open>> | null = null;
  try {
    file = await open(path);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(START_BYTES), 0, START_BYTES, 0);
    return textsOf(buffer.subarray(0, bytesRead));
  } catch {
    return new Map();
  } finally {
    await file?.close();
  }
}

/** As GNOME runs a thumbnailer (gnome-desktop-thumbnail-script.c): without network, home directory and other processes. */
async function sandboxed(words: readonly string[], room: string, env: Environment): Promise<readonly string[]> {
  const folders = (env.PATH ?? '').split(':').filter((folder) => folder.startsWith('/'));
  for (const folder of folders) {
    const bwrap = join(folder, 'bwrap');
    const isThere = await open(bwrap).then(
      (file) => file.close().then(() => true),
      () => false,
    );
    if (!isThere) continue;
    const readable = ['/usr', '/bin', '/sbin', '/lib', '/lib64', '/etc/ld.so.cache', '/etc/alternatives'];
    const binds = readable.flatMap((path) => ['--ro-bind-try', path, path]);
    const rest = ['--proc', '/proc', '--dev', '/dev', '--chdir', '/', '--unshare-all', '--die-with-parent'];
    return [bwrap, ...binds, '--bind', room, room, ...rest, ...words];
  }
  return words;
}

/** @throws Error if it does not end with 0 in time */
function run([program = '', ...args]: readonly string[], env: Environment): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      stdio: 'ignore',
      cwd: '/',
      timeout: MAKING_MS_MAX,
      killSignal: 'SIGKILL',
      env: { PATH: env.PATH, GIO_USE_VFS: 'local' },
    });
    child.on('error', reject);
    child.on('exit', (code, signal) =>
      code === 0 ? resolve() : reject(new Error(`${program} ended with ${code ?? signal}`)),
    );
    child.unref();
    try {
      if (child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_LOW);
    } catch {
      // It has ended.
    }
  });
}

/** null: this user has no home directory. */
function placesOf(env: Environment): { readonly cache: string; readonly entry: string } | null {
  try {
    return { cache: resolved(thumbnailsDirectory(env)), entry: join(thumbnailersDirectory(env), ENTRY_NAME) };
  } catch {
    return null;
  }
}

/** The path without links, as far as it exists. */
function resolved(path: string): string {
  const parent = dirname(path);
  try {
    return realpathSync(path);
  } catch {
    return parent === path ? path : join(resolved(parent), path.slice(parent.length));
  }
}
