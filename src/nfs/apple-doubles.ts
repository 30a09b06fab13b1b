import type { Inode } from '../base/vocabulary.ts';
import type { FileSystemOps } from '../kernel/binding.ts';
import type { OpCalls } from '../kernel/op-calls.ts';
import type { HeldOpens } from './held-opens.ts';
import type { Nodes } from './nodes.ts';
import type { RpcCaller } from './rpc-message.ts';

/** AppleDouble: `._x` has the Finder information and extended attributes of `x`. Apple's client writes it where a protocol has no attributes. */
const PREFIX = '._';

interface Place {
  readonly ino: Inode;
  readonly name: string;
}

/**
 * Moves `._x` with `x`, and removes it with `x`. Apple's kernel does the same for its own programs, and ignores that it comes second
 * (nfs_vnops.c: NOENT counts as a repeated call). Failures are ignored: `x` itself was renamed or removed.
 */
export class AppleDoubles {
  readonly #ops: FileSystemOps;
  readonly #calls: OpCalls;
  readonly #nodes: Nodes;
  readonly #opens: HeldOpens;

  constructor(deps: {
    readonly ops: FileSystemOps;
    readonly calls: OpCalls;
    readonly nodes: Nodes;
    readonly opens: HeldOpens;
  }) {
    this.#ops = deps.ops;
    this.#calls = deps.calls;
    this.#nodes = deps.nodes;
    this.#opens = deps.opens;
  }

  /** `from` was renamed to `to`. A file without `._x` replaces one with it: the `._x` of the replaced file is removed. */
  async renamed(from: Place, to: Place, caller: RpcCaller): Promise<void> {
    if (isDouble(from.name) || isDouble(to.name)) return;
    const [before, after] = [doubleOf(from.name), doubleOf(to.name)];
    const ino = await this.#inodeOf(from.ino, before, caller);
    if (ino === null) return this.removed(to.ino, to.name, caller);
    await this.#quietly(() =>
      this.#calls.run('rename', from.ino, caller, (ctx) =>
        this.#ops.rename(from.ino, before, to.ino, after, 'replace', ctx),
      ),
    );
  }

  /** `name` was removed from the folder. */
  async removed(folder: Inode, name: string, caller: RpcCaller): Promise<void> {
    if (isDouble(name)) return;
    const double = doubleOf(name);
    const ino = await this.#inodeOf(folder, double, caller);
    if (ino === null) return;
    await this.#quietly(() =>
      this.#calls.run('unlink', folder, caller, (ctx) => this.#ops.unlink(folder, double, ctx)),
    );
    await this.#opens.drop(ino);
  }

  /** Another machine deleted `name`: its `._*` file exists on this machine alone. */
  async removedElsewhere(folder: Inode, name: string): Promise<void> {
    const owner = { uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0, gids: [] };
    if (!(await this.#exists(folder, name, owner))) await this.removed(folder, name, owner);
  }

  async #exists(folder: Inode, name: string, caller: RpcCaller): Promise<boolean> {
    try {
      return await this.#nodes.withChild(folder, name, caller, async (found) => found !== null);
    } catch {
      return true; // unknown: the folder is gone, or cannot be read now
    }
  }

  async #inodeOf(folder: Inode, name: string, caller: RpcCaller): Promise<Inode | null> {
    try {
      return await this.#nodes.withChild(folder, name, caller, async (found) =>
        found?.kind === 'file' ? found.ino : null,
      );
    } catch {
      return null; // a name that became too long, or a folder that is gone
    }
  }

  async #quietly(act: () => unknown): Promise<void> {
    try {
      await act();
    } catch {
      // Logged by the calls.
    }
  }
}

function isDouble(name: string): boolean {
  return name.startsWith(PREFIX);
}

function doubleOf(name: string): string {
  return `${PREFIX}${name}`;
}
