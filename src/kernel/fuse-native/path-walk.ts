import { isUtf8 } from 'node:buffer';
import { FsError } from '../../base/errors.ts';
import { type Inode, type NodeKind, ROOT_INODE } from '../../base/vocabulary.ts';
import type { Entry, NegativeEntry } from '../binding.ts';
import { NAME_BYTES_MAX } from '../protocol.ts';

/**
 * Paths on top of inodes, for bindings without a kernel between them and the caller: walks from the root by lookup, follows symlinks,
 * and returns every lookup at the end of the call.
 */

/** A path below the root, with or without a leading slash; '' is the root. Bytes, for names that are not UTF-8. */
export type WalkPath = string | Uint8Array;

/** The entry that a path names. */
export interface Walked {
  /** Null: the name does not exist, but its folder does. */
  readonly ino: Inode | null;
  /** Kind of `ino`; meaningless without one. */
  readonly kind: NodeKind;
  readonly parent: Inode;
  /** '' for the root, which has no name. */
  readonly name: string;
  /** The folders on the way, from the root to `parent`. */
  readonly folders: readonly Inode[];
}

/** The lookups behind a walk. */
export interface WalkSource {
  lookup(parent: Inode, name: string): Promise<Entry | NegativeEntry>;
  readlink(ino: Inode): Promise<string>;
  forget(ino: Inode, count: number): void;
  /** A lookup was counted. */
  counted(): void;
}

/** The lookups that one call holds. */
export interface LookupLedger {
  /** An operation returned an entry: one more lookup. */
  took(entry: Entry): void;
  /** One lookup of `ino` outlives the call: its keeper must forget it. */
  keep(ino: Inode): void;
}

/** path_resolution(7) */
const SYMLINKS_MAX = 40;

export class PathWalk {
  readonly #source: WalkSource;

  constructor(source: WalkSource) {
    this.#source = source;
  }

  /**
   * Walks `path` and runs `run` with its target; then returns the lookups.
   *
   * @throws FsError ENOENT or ENOTDIR for a folder on the way, ELOOP, ENAMETOOLONG, EILSEQ
   */
  async use<T>(
    path: WalkPath,
    follow: 'follow' | 'stay',
    run: (walked: Walked, ledger: LookupLedger) => Promise<T> | T,
  ): Promise<T> {
    const held: Inode[] = [];
    const ledger: LookupLedger = {
      took: (entry) => {
        this.#source.counted();
        held.push(entry.attributes.ino);
      },
      keep: (ino) => {
        const at = held.indexOf(ino);
        if (at >= 0) held.splice(at, 1);
      },
    };
    try {
      return await run(await this.#walk(textOf(path), follow, ledger), ledger);
    } finally {
      for (const ino of held) this.#source.forget(ino, 1);
    }
  }

  async #walk(path: string, follow: 'follow' | 'stay', ledger: LookupLedger): Promise<Walked> {
    let parts = partsOf(path);
    // The folders from the root to the current one; `..` removes the last.
    let way: { ino: Inode; name: string }[] = [{ ino: ROOT_INODE, name: '' }];
    let links = 0;
    while (parts.length > 0) {
      const name = parts.shift() as string;
      const here = way.at(-1)?.ino ?? ROOT_INODE;
      const last = parts.length === 0;
      if (name === '.') continue;
      if (name === '..') {
        if (way.length > 1) way.pop();
        continue;
      }
      if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new FsError('ENAMETOOLONG');
      const entry = await this.#source.lookup(here, name);
      if (entry.attributes === null) {
        if (!last) throw new FsError('ENOENT');
        return { ino: null, kind: 'file', parent: here, name, folders: way.map(({ ino }) => ino) };
      }
      ledger.took(entry);
      const { ino, kind } = entry.attributes;
      if (kind === 'symlink' && (!last || follow === 'follow')) {
        if (++links > SYMLINKS_MAX) throw new FsError('ELOOP');
        const target = await this.#source.readlink(ino);
        if (target.startsWith('/')) way = way.slice(0, 1);
        parts = [...partsOf(target), ...parts];
        continue;
      }
      if (last) return { ino, kind, parent: here, name, folders: way.map((step) => step.ino) };
      if (kind !== 'folder') throw new FsError('ENOTDIR');
      way.push({ ino, name });
    }
    const at = way.at(-1) as { ino: Inode; name: string };
    const above = way.slice(0, -1);
    return {
      ino: at.ino,
      kind: 'folder',
      parent: above.at(-1)?.ino ?? ROOT_INODE,
      name: at.name,
      folders: above.map(({ ino }) => ino),
    };
  }
}

function partsOf(path: string): string[] {
  return path.split('/').filter((part) => part !== '');
}

function textOf(path: WalkPath): string {
  if (typeof path === 'string') return path;
  if (!isUtf8(path)) throw new FsError('EILSEQ');
  return Buffer.from(path).toString('utf8');
}
