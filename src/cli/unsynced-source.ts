import { existsSync, readlinkSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { FsError } from '../base/errors.ts';
import { silentLogger } from '../base/log.ts';
import type { ContentId, Extent, Inode } from '../base/vocabulary.ts';
import { callControl } from '../control/client.ts';
import type { UnsyncedFile } from '../control/status-model.ts';
import { ContentStore } from '../store/content-store.ts';
import { openStore } from './accounts.ts';
import { unsyncedFiles } from './pending-changes.ts';

/** What exists on this machine only, from whoever has it. */
export interface UnsyncedSource {
  files(): AsyncIterable<UnsyncedFile>;
  open(file: UnsyncedFile): Promise<UnsyncedReader>;
  close(): Promise<void>;
}

export interface UnsyncedReader {
  /** The bytes of an extent that lies within the file, in parts. */
  read(extent: Extent): Promise<readonly UnsyncedPart[]>;
  close(): Promise<void>;
}

export interface UnsyncedPart {
  readonly length: number;
  /** null: these bytes, or some of them, cannot be had. */
  readonly bytes: Uint8Array | null;
}

/** Through a mount that runs: it alone may use its store. The bytes come from the mount like for any program. */
export function openUnsyncedInMount(socketPath: string, directory: string): UnsyncedSource {
  return {
    files: async function* () {
      for (let after: number | null = 0; after !== null; ) {
        const page: { readonly files: readonly UnsyncedFile[]; readonly next: number | null } = await callControl(
          socketPath,
          'unsynced',
          { after },
        );
        yield* page.files;
        after = page.next;
      }
    },
    open: async ({ path, kind }) => {
      if (kind === 'symlink') {
        const target = readlinkSync(join(directory, path), { encoding: 'buffer' });
        return { read: async () => [{ length: target.byteLength, bytes: target }], close: async () => {} };
      }
      const file = await open(join(directory, path), 'r');
      return {
        read: async ({ start, end }) => {
          const bytes = new Uint8Array(end - start);
          const length = bytes.byteLength;
          try {
            const { bytesRead } = await file.read(bytes, 0, length, start);
            return [{ length, bytes: bytesRead === length ? bytes : null }];
          } catch (error) {
            if (NOT_HERE.has((error as NodeJS.ErrnoException).code ?? '')) return [{ length, bytes: null }];
            throw error;
          }
        },
        close: () => file.close(),
      };
    },
    close: async () => {},
  };
}

/** How a read of bytes that are not here fails. */
const NOT_HERE: ReadonlySet<string> = new Set(['EIO', 'ESTALE', 'ETIMEDOUT']);

/** From the store of an account that is not mounted. @throws UsageError with its owner · StorageError */
export async function openUnsyncedInStore(directory: string, clock: Clock): Promise<UnsyncedSource> {
  // Looking at what was never mounted would make it.
  if (!existsSync(join(directory, 'index'))) {
    return {
      files: async function* () {},
      open: () => Promise.reject(new Error('nothing is here')),
      close: async () => {},
    };
  }
  const store = await openStore(directory, clock);
  const contents = new ContentStore({
    store,
    directory,
    clock,
    log: silentLogger,
    // Nothing is fetched and nothing evicted: what these limits are does not matter.
    options: { inlineMaxBytes: 16 * 1024, cacheBytes: Number.MAX_SAFE_INTEGER },
  });
  return {
    files: async function* () {
      for (let after: number | null = 0; after !== null; ) {
        const page: ReturnType<typeof unsyncedFiles> = unsyncedFiles(store, after);
        yield* page.files;
        after = page.next;
      }
    },
    open: async ({ ino }) => {
      const content = store.get('node', ino as Inode)?.local?.content ?? null;
      return {
        read: async (extent) => readHere(contents, content, extent),
        close: async () => {},
      };
    },
    close: async () => {
      contents.close();
      await store.close();
    },
  };
}

/** Each byte that is here, however little of its block is: a change in a block whose rest is nowhere is still somebody's. */
function readHere(contents: ContentStore, content: ContentId | null, { start, end }: Extent): readonly UnsyncedPart[] {
  const nothing = [{ length: end - start, bytes: null }];
  if (content === null) return nothing;
  try {
    let at = start;
    return contents.pieces(content, { start, end }).map(({ kind, length }) => {
      const part = { start: at, end: at + length };
      at = part.end;
      return { length, bytes: kind === 'missing' ? null : contents.readAll(content, part) };
    });
  } catch (error) {
    if (error instanceof FsError) return nothing;
    throw error;
  }
}
