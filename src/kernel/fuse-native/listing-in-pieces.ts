import type { Inode, NodeKind } from '../../base/vocabulary.ts';
import type { DirectorySink, Entry } from '../binding.ts';

export interface DirectoryEntry {
  readonly name: string;
  readonly ino: Inode;
  readonly kind: NodeKind;
}

/** About as many entries as one READDIRPLUS of the kernel: this exercises cookies and returns lookups in portions. */
const PIECE_ENTRIES = 30;

/**
 * Reads a whole folder in pieces, as the kernel does. `ask` runs one readdir; lookups that come with entries are counted and returned
 * immediately. The entries keep the folder's order, without `.` and `..`.
 */
export async function gatherListing(folder: {
  ask(cookie: number, sink: DirectorySink): Promise<void>;
  counted(): void;
  forget(ino: Inode): void;
}): Promise<DirectoryEntry[]> {
  const entries: DirectoryEntry[] = [];
  for (let cookie = 0; ; ) {
    const piece: DirectoryEntry[] = [];
    const lookups: Inode[] = [];
    const sink: DirectorySink = {
      wantsEntries: true,
      add: (name: string, ino: Inode, kind: NodeKind, next: number, entry: Entry | null): boolean => {
        if (piece.length >= PIECE_ENTRIES) return false;
        piece.push({ name, ino, kind });
        cookie = next;
        if (entry !== null && name !== '.' && name !== '..') {
          folder.counted();
          lookups.push(ino);
        }
        return true;
      },
    };
    try {
      await folder.ask(cookie, sink);
    } finally {
      for (const ino of lookups) folder.forget(ino);
    }
    if (piece.length === 0) return entries;
    entries.push(...piece.filter(({ name }) => name !== '.' && name !== '..'));
  }
}
