import { existsSync } from 'node:fs';
import { open, readlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { systemCodeOf } from '../../base/errors.ts';
import { silentLogger } from '../../base/log.ts';
import type { Extent, Inode } from '../../base/vocabulary.ts';
import { ContentStore } from '../../bytes/content-store.ts';
import { callControl } from '../../control/client.ts';
import type { UnsyncedFile } from '../../control/status-model.ts';
import { partsHere, type UnsyncedPart, unsyncedFiles } from '../../mount/pending-changes.ts';
import { openStore } from './accounts.ts';
import { DeepFolders } from './deep-folders.ts';

/** Data that exists only on this machine, read from a mount or from a store. */
export interface UnsyncedSource {
  files(): AsyncIterable<UnsyncedFile>;
  open(file: UnsyncedFile): Promise<UnsyncedReader>;
  close(): Promise<void>;
}

export interface UnsyncedReader {
  /** The size of the opened file, which may differ from the listed one. */
  readonly sizeBytes: number;
  /** The bytes of an extent that lies within the file, in parts. */
  read(extent: Extent): Promise<readonly UnsyncedPart[]>;
  close(): Promise<void>;
}

/**
 * Reads through a running mount, which alone may use its store. The bytes are read like by any program, so that the mount fetches
 * missing ones from the service. If that fails, the mount returns the bytes that are here, also from incomplete pages and blocks.
 */
export function openUnsyncedInMount(socketPath: string, directory: string): UnsyncedSource {
  // One timeout for all pieces, not one for each.
  let isAway = false;
  const folders = new DeepFolders(directory, 'refuse');
  const at = <T>(path: string, act: (short: string) => Promise<T>): Promise<T> =>
    folders.in(dirname(path), (folder) => act(join(folder, basename(path))));
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
        const target = await at(path, (short) => readlink(short, { encoding: 'buffer' }));
        const sizeBytes = target.byteLength;
        return { sizeBytes, read: async () => [{ length: sizeBytes, bytes: target }], close: async () => {} };
      }
      const file = await at(path, (short) => open(short, 'r'));
      const { ino, size: sizeBytes } = await file.stat();
      return {
        sizeBytes,
        read: async ({ start, end }) => {
          if (!isAway) {
            const bytes = new Uint8Array(end - start);
            try {
              const { bytesRead } = await file.read(bytes, 0, bytes.byteLength, start);
              if (bytesRead === bytes.byteLength) return [{ length: bytesRead, bytes }];
            } catch (error) {
              const code = systemCodeOf(error) ?? '';
              if (!NOT_HERE.has(code)) throw error;
              isAway = code === 'ETIMEDOUT';
            }
          }
          const { parts } = await callControl(socketPath, 'unsyncedParts', { ino, start, end });
          return parts.map(({ length, base64 }) => ({
            length,
            bytes: base64 === null ? null : Buffer.from(base64, 'base64'),
          }));
        },
        close: () => file.close(),
      };
    },
    close: () => folders.close(),
  };
}

/** The errors of a read of bytes that are not here. */
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
    // Nothing is fetched or evicted, so these limits have no effect.
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
    open: async ({ ino, sizeBytes }) => {
      const content = store.get('node', ino as Inode)?.local?.content ?? null;
      return {
        sizeBytes,
        read: async (extent) => partsHere(contents, content, extent),
        close: async () => {},
      };
    },
    close: async () => {
      contents.close();
      await store.close();
    },
  };
}
