import { constants } from 'node:fs';
import { FsError } from '../../base/errors.ts';
import { type HandleId, type Inode, type NodeKind, ROOT_INODE } from '../../base/vocabulary.ts';
import type { Answer, AttributeChange, Attributes, FileSystemOps, FileSystemStats, OpContext } from '../binding.ts';
import { bytesOf } from '../gathered-reply.ts';
import type { OpBoundary, OpName } from '../op-boundary.ts';
import { OpCalls } from '../op-calls.ts';
import { openFlags } from '../open-flags.ts';
import { gatherListing } from './listing-in-pieces.ts';
import { type LookupLedger, PathWalk } from './path-walk.ts';

const { O_CREAT, O_EXCL, S_IFMT, S_IFREG } = constants;

export interface ListedName {
  readonly name: string;
  readonly ino: Inode;
  readonly kind: NodeKind;
}

/** Common to all calls of one mount: a binding by paths does not know its callers. */
export interface PathCaller {
  readonly uid: number;
  readonly gid: number;
}

interface OpenFile {
  readonly ino: Inode;
  readonly handle: HandleId;
}

/**
 * `FileSystemOps` by paths, for a library that knows only paths. The kernel below it has resolved the path and followed every link, so
 * no link is followed here, and it has checked the restrictions of rename(2). Every call fails with an `FsError`. All arguments and results
 * are plain data, so that calls can cross a process boundary.
 *
 * Every call returns its lookups, except those of open files.
 */
export class PathOperations {
  readonly #ops: FileSystemOps;
  readonly #calls: OpCalls;
  readonly #caller: PathCaller;
  readonly #walk: PathWalk;
  readonly #open = new Map<number, OpenFile>();
  /** Open files whose name was removed, by the last part of the path that the library still uses for them. */
  readonly #nameless = new Map<string, { readonly ino: Inode; readonly folder: Inode }>();
  #nextDescriptor = 1; // 0 means "none" to libraries that keep it in the file's info
  #lookups = 0;

  constructor(deps: { ops: FileSystemOps; boundary: OpBoundary; caller: PathCaller }) {
    this.#ops = deps.ops;
    this.#calls = new OpCalls(deps);
    this.#caller = deps.caller;
    this.#walk = new PathWalk({
      lookup: (parent, name) => this.#do('lookup', parent, (ctx) => this.#ops.lookup(parent, name, ctx)),
      readlink: (ino) => this.#do('readlink', ino, (ctx) => this.#ops.readlink(ino, ctx)),
      forget: (ino, count) => this.#forget(ino, count),
      counted: () => {
        this.#lookups++;
      },
    });
  }

  /** Outstanding lookups: those of open files. */
  get lookups(): number {
    return this.#lookups;
  }

  getattr(path: string): Promise<Attributes> {
    return this.#at(path, async (ino) => {
      const reply = await this.#do('getattr', ino, (ctx) => this.#ops.getattr(ino, null, ctx));
      return reply.attributes;
    });
  }

  /** Entries, `.` and `..` first. */
  readdir(path: string): Promise<ListedName[]> {
    return this.#inFolder(path, async (ino, handle, parent) => {
      const entries = await gatherListing({
        ask: (cookie, sink) => this.#do('readdir', ino, (ctx) => this.#ops.readdir(ino, handle, cookie, sink, ctx)),
        forget: (child) => this.#forget(child, 1),
        counted: () => {
          this.#lookups++;
        },
      });
      return [{ name: '.', ino, kind: 'folder' }, { name: '..', ino: parent, kind: 'folder' }, ...entries];
    });
  }

  async fsyncdir(path: string, dataOnly: boolean): Promise<void> {
    await this.#inFolder(path, (ino, handle) =>
      this.#do('fsyncdir', ino, (ctx) => this.#ops.fsyncdir(ino, handle, dataOnly, ctx)),
    );
  }

  /** @returns a descriptor: 1 and up */
  open(path: string, flags: number): Promise<number> {
    const decoded = openFlags(flags & ~(O_CREAT | O_EXCL));
    return this.#at(path, async (ino, ledger) => {
      const { handle } = await this.#do('open', ino, (ctx) => this.#ops.open(ino, decoded, ctx));
      ledger.keep(ino);
      return this.#opened(ino, handle);
    });
  }

  create(path: string, mode: number, flags: number): Promise<number> {
    return this.#adding(path, async (parent, name, ledger) => {
      const entry = await this.#do('create', parent, (ctx) =>
        this.#ops.create(parent, name, mode & 0o7777, openFlags(flags), ctx),
      );
      ledger.took(entry);
      ledger.keep(entry.attributes.ino);
      return this.#opened(entry.attributes.ino, entry.open.handle);
    });
  }

  async read(descriptor: number, offset: number, length: number): Promise<Uint8Array> {
    const { ino, handle } = this.#file(descriptor);
    return bytesOf(await this.#do('read', ino, (ctx) => this.#ops.read(ino, handle, offset, length, ctx)));
  }

  async write(descriptor: number, offset: number, bytes: Uint8Array): Promise<number> {
    const { ino, handle } = this.#file(descriptor);
    return this.#do('write', ino, (ctx) => this.#ops.write(ino, handle, offset, bytes, ctx));
  }

  async flush(descriptor: number): Promise<void> {
    const { ino, handle } = this.#file(descriptor);
    await this.#do('flush', ino, (ctx) => this.#ops.flush(ino, handle, ctx));
  }

  async fsync(descriptor: number, dataOnly: boolean): Promise<void> {
    const { ino, handle } = this.#file(descriptor);
    await this.#do('fsync', ino, (ctx) => this.#ops.fsync(ino, handle, dataOnly, ctx));
  }

  /** The descriptor is released even if this throws. */
  async release(descriptor: number): Promise<void> {
    const { ino, handle } = this.#file(descriptor);
    this.#open.delete(descriptor);
    try {
      await this.#do('release', ino, (ctx) => this.#ops.release(ino, handle, ctx));
    } finally {
      this.#forget(ino, 1);
    }
  }

  async ftruncate(descriptor: number, sizeBytes: number): Promise<void> {
    const { ino, handle } = this.#file(descriptor);
    await this.#do('setattr', ino, (ctx) => this.#ops.setattr(ino, { sizeBytes }, handle, ctx));
  }

  async change(path: string, change: AttributeChange): Promise<void> {
    await this.#at(path, (ino) => this.#do('setattr', ino, (ctx) => this.#ops.setattr(ino, change, null, ctx)));
  }

  async mknod(path: string, mode: number): Promise<void> {
    if ((mode & S_IFMT) !== S_IFREG && (mode & S_IFMT) !== 0) throw new FsError('EPERM');
    return this.#adding(path, async (parent, name, ledger) => {
      const entry = await this.#do('mknod', parent, (ctx) => this.#ops.mknod(parent, name, 'file', mode & 0o7777, ctx));
      ledger.took(entry);
    });
  }

  mkdir(path: string, mode: number): Promise<void> {
    return this.#adding(path, async (parent, name, ledger) => {
      const entry = await this.#do('mkdir', parent, (ctx) => this.#ops.mkdir(parent, name, mode & 0o7777, ctx));
      ledger.took(entry);
    });
  }

  symlink(target: string, path: string): Promise<void> {
    return this.#adding(path, async (parent, name, ledger) => {
      const entry = await this.#do('symlink', parent, (ctx) => this.#ops.symlink(parent, name, target, ctx));
      ledger.took(entry);
    });
  }

  link(existing: string, added: string): Promise<void> {
    return this.#at(existing, (ino) =>
      this.#adding(added, async (parent, name, ledger) => {
        const entry = await this.#do('link', ino, (ctx) => this.#ops.link(ino, parent, name, ctx));
        ledger.took(entry);
      }),
    );
  }

  readlink(path: string): Promise<string> {
    return this.#at(path, (ino) => this.#do('readlink', ino, (ctx) => this.#ops.readlink(ino, ctx)));
  }

  unlink(path: string): Promise<void> {
    return this.#walk.use(path, 'stay', async ({ parent, name }) => {
      await this.#do('unlink', parent, (ctx) => this.#ops.unlink(parent, name, ctx));
    });
  }

  /** @throws FsError ENOTEMPTY also for a folder of files with an alias: the library would lose its path to them */
  rmdir(path: string): Promise<void> {
    return this.#walk.use(path, 'stay', async ({ ino, parent, name }) => {
      this.#refuseFolderOfNameless(ino);
      await this.#do('rmdir', parent, (ctx) => this.#ops.rmdir(parent, name, ctx));
    });
  }

  rename(from: string, to: string): Promise<void> {
    return this.#walk.use(from, 'stay', (source) =>
      this.#walk.use(to, 'stay', async (target) => {
        this.#refuseFolderOfNameless(target.ino);
        await this.#do('rename', source.parent, (ctx) =>
          this.#ops.rename(source.parent, source.name, target.parent, target.name, 'replace', ctx),
        );
      }),
    );
  }

  /** Removes the name of an open file, which stays accessible as `alias`. @returns false when it is not open: nothing was changed */
  unlinkOpen(path: string, alias: string): Promise<boolean> {
    return this.#walk.use(path, 'stay', async (walked, ledger) => {
      const { ino, parent, name } = walked;
      if (ino === null || ![...this.#open.values()].some((file) => file.ino === ino)) return false;
      await this.#do('unlink', parent, (ctx) => this.#ops.unlink(parent, name, ctx));
      ledger.keep(ino);
      this.#nameless.set(alias, { ino, folder: parent });
      return true;
    });
  }

  /** The file with this `alias` is closed. @returns false for an unknown alias */
  async forgetAlias(alias: string): Promise<boolean> {
    const nameless = this.#nameless.get(alias);
    if (nameless === undefined) return false;
    this.#nameless.delete(alias);
    this.#forget(nameless.ino, 1);
    return true;
  }

  statfs(path: string): Promise<FileSystemStats> {
    return this.#at(path, (ino) => this.#do('statfs', ino, (ctx) => this.#ops.statfs(ino, ctx)));
  }

  async getxattr(path: string, name: string): Promise<Uint8Array> {
    refuseForeign(name);
    return this.#at(path, (ino) => this.#do('getxattr', ino, (ctx) => this.#ops.getxattr(ino, name, ctx)));
  }

  async setxattr(path: string, name: string, value: Uint8Array, mode: 'set' | 'create' | 'replace'): Promise<void> {
    refuseForeign(name);
    return this.#at(path, (ino) => this.#do('setxattr', ino, (ctx) => this.#ops.setxattr(ino, name, value, mode, ctx)));
  }

  listxattr(path: string): Promise<readonly string[]> {
    return this.#at(path, (ino) => this.#do('listxattr', ino, (ctx) => this.#ops.listxattr(ino, ctx)));
  }

  async removexattr(path: string, name: string): Promise<void> {
    refuseForeign(name);
    return this.#at(path, (ino) => this.#do('removexattr', ino, (ctx) => this.#ops.removexattr(ino, name, ctx)));
  }

  /** No further call follows: releases all open files. */
  async closeAll(): Promise<void> {
    for (const descriptor of [...this.#open.keys()]) await this.release(descriptor).catch(() => undefined);
    for (const alias of [...this.#nameless.keys()]) await this.forgetAlias(alias);
  }

  #refuseFolderOfNameless(ino: Inode | null): void {
    if ([...this.#nameless.values()].some(({ folder }) => folder === ino)) throw new FsError('ENOTEMPTY');
  }

  async #inFolder<T>(path: string, run: (ino: Inode, handle: HandleId, parent: Inode) => Promise<T>): Promise<T> {
    return this.#walk.use(path, 'stay', async ({ ino, parent }) => {
      if (ino === null) throw new FsError('ENOENT');
      const { handle } = await this.#do('opendir', ino, (ctx) => this.#ops.opendir(ino, ctx));
      try {
        return await run(ino, handle, parent);
      } finally {
        await this.#do('releasedir', ino, (ctx) => this.#ops.releasedir(ino, handle, ctx));
      }
    });
  }

  #opened(ino: Inode, handle: HandleId): number {
    const descriptor = this.#nextDescriptor++;
    this.#open.set(descriptor, { ino, handle });
    return descriptor;
  }

  #file(descriptor: number): OpenFile {
    const file = this.#open.get(descriptor);
    if (file === undefined) throw new FsError('EBADF');
    return file;
  }

  /** Walks to an existing node, or finds it by its alias. */
  #at<T>(path: string, run: (ino: Inode, ledger: LookupLedger) => Answer<T>): Promise<T> {
    const nameless = this.#nameless.get(path.slice(path.lastIndexOf('/') + 1));
    if (nameless !== undefined) return Promise.resolve(run(nameless.ino, NO_LOOKUPS));
    return this.#walk.use(path, 'stay', async ({ ino }, ledger) => {
      if (ino === null) throw new FsError('ENOENT');
      return run(ino, ledger);
    });
  }

  /** Walks to a name that must not exist yet. */
  #adding<T>(path: string, run: (parent: Inode, name: string, ledger: LookupLedger) => Promise<T>): Promise<T> {
    return this.#walk.use(path, 'stay', async ({ ino, parent, name }, ledger) => {
      if (ino !== null) throw new FsError('EEXIST');
      return run(parent, name, ledger);
    });
  }

  #forget(ino: Inode, count: number): void {
    if (ino === ROOT_INODE) return;
    this.#lookups -= count;
    this.#ops.forget(ino, count);
  }

  /** Runs one operation: counted, failures logged, refused after the deadline. */
  async #do<T>(op: OpName, ino: Inode, call: (ctx: OpContext) => Answer<T>): Promise<T> {
    return this.#calls.run(op, ino, this.#caller, call);
  }
}

/** For access by alias: its one lookup belongs to the alias. */
const NO_LOOKUPS: LookupLedger = { took: () => undefined, keep: () => undefined };

/** As `FileSystemOps.getxattr` demands: attributes that mean something to the kernel never reach a file system. */
function refuseForeign(name: string): void {
  if (name.startsWith('security.') || name.startsWith('system.posix_acl_')) throw new FsError('EOPNOTSUPP');
}
