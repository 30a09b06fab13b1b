import { constants } from 'node:fs';
import type { HandleId, Inode } from '../base/vocabulary.ts';
import type { FileSystemOps } from '../kernel/binding.ts';
import type { OpCalls } from '../kernel/op-calls.ts';
import { openFlags } from '../kernel/open-flags.ts';
import type { RpcCaller } from './rpc-message.ts';

/** The prefix of the names that Linux (`.nfs` and 24 digits) and macOS (`.nfs.` and digits) give to removed files that are open. */
const PREFIX = '.nfs';
const FILES_MAX = 10_000;

interface RemovedFile {
  readonly ino: Inode;
  readonly handle: HandleId | null;
  readonly caller: RpcCaller;
}

/**
 * Files that were removed while a program of the client has them open. The client renames such a file to `.nfs…` and removes that name after the
 * last close(2). Here the file loses its name immediately, as everywhere else: the folder can be removed, and the deletion is pushed. A handle
 * keeps the bytes until the client removes the `.nfs…` name, which exists for it alone.
 */
export class RemovedWhileOpen {
  readonly #ops: FileSystemOps;
  readonly #calls: OpCalls;
  readonly #files = new Map<string, RemovedFile>();

  constructor(deps: { readonly ops: FileSystemOps; readonly calls: OpCalls }) {
    this.#ops = deps.ops;
    this.#calls = deps.calls;
  }

  get size(): number {
    return this.#files.size;
  }

  /** Whether a rename to this name in the same folder means the removal of an open file. */
  isName(name: string): boolean {
    return name.startsWith(PREFIX);
  }

  inodeOf(folder: Inode, name: string): Inode | null {
    return this.#files.size === 0 ? null : (this.#files.get(keyOf(folder, name))?.ino ?? null);
  }

  /** Removes `name` from the folder. Its file stays usable, under `hidden`, until `letGo`. */
  async remove(
    folder: Inode,
    file: { readonly name: string; readonly ino: Inode; readonly isFile: boolean },
    hidden: string,
    caller: RpcCaller,
  ): Promise<void> {
    const { ino, name } = file;
    if (this.#files.size >= FILES_MAX) await this.#letOldestGo();
    const flags = openFlags(constants.O_RDWR);
    // Its lookup is returned with the handle: `withChild` returns its own.
    await this.#calls.run('lookup', folder, caller, (ctx) => this.#ops.lookup(folder, name, ctx));
    let removed: RemovedFile = { ino, handle: null, caller };
    try {
      if (file.isFile) {
        const { handle } = await this.#calls.run('open', ino, caller, (ctx) => this.#ops.open(ino, flags, ctx));
        removed = { ...removed, handle };
      }
      await this.#calls.run('unlink', folder, caller, (ctx) => this.#ops.unlink(folder, name, ctx));
    } catch (error) {
      await this.#end(removed);
      throw error;
    }
    this.#files.set(keyOf(folder, hidden), removed);
  }

  /** The client has closed the file. @returns its inode; null if the name is not that of a removed file */
  async letGo(folder: Inode, hidden: string): Promise<Inode | null> {
    const key = keyOf(folder, hidden);
    const removed = this.#files.get(key);
    if (removed === undefined) return null;
    this.#files.delete(key);
    await this.#end(removed);
    return removed.ino;
  }

  async close(): Promise<void> {
    const all = [...this.#files.values()];
    this.#files.clear();
    await Promise.all(all.map((removed) => this.#end(removed)));
  }

  async #letOldestGo(): Promise<void> {
    const [oldest] = this.#files;
    if (oldest === undefined) return;
    this.#files.delete(oldest[0]);
    await this.#end(oldest[1]);
  }

  async #end({ ino, handle, caller }: RemovedFile): Promise<void> {
    if (handle !== null) {
      try {
        await this.#calls.run('release', ino, caller, (ctx) => this.#ops.release(ino, handle, ctx));
      } catch {
        // Logged by the calls; the file is gone.
      }
    }
    this.#ops.forget(ino, 1);
  }
}

function keyOf(folder: Inode, name: string): string {
  return `${folder}/${name}`;
}
