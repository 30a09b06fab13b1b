import type { Clock } from '../base/clock.ts';
import type { HandleId, Inode } from '../base/vocabulary.ts';
import type { DirectorySink, Entry } from '../kernel/binding.ts';
import { ATTRIBUTE_BYTES, writeMaybeAttributes } from './attributes.ts';
import type { NfsParts } from './nfs-parts.ts';
import { expectGranted, MAY_READ } from './permissions.ts';
import { NfsError, STATUS, TRANSFER_BYTES_MAX, VERIFIER_BYTES } from './protocol.ts';
import type { RpcCaller } from './rpc-message.ts';
import { type XdrReader, XdrWriter } from './xdr.ts';

const LISTINGS_MAX = 64;
const IDLE_MS_MAX = 60_000;
/** status, attributes, verifier, the end of the list, eof */
const FRAME_BYTES = 4 + 4 + ATTRIBUTE_BYTES + VERIFIER_BYTES + 4 + 4;
/** Memory for a reply: one of this length is seldom copied to a larger place. */
const ENTRIES_BYTES = 128 * 1024;
/** More than the longest entry: the first one that does not fit is written, too. */
const ENTRY_BYTES_MAX = 1024;

interface OpenListing {
  readonly ino: Inode;
  readonly handle: HandleId;
  readonly caller: RpcCaller;
  usedMs: number;
}

/**
 * READDIR and READDIRPLUS. A listing from the start opens the folder; its number is the cookie verifier. The open folder remembers the names of
 * entries that are removed during the listing (`rm -r`), so that it continues in the right place.
 */
export class Listing {
  readonly #parts: NfsParts;
  readonly #clock: Clock;
  /** By verifier, least recently used first. */
  readonly #open = new Map<number, OpenListing>();
  #next = 1;

  constructor(parts: NfsParts, clock: Clock) {
    this.#parts = parts;
    this.#clock = clock;
  }

  /** @returns the entries, which follow in the reply */
  async readdir(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<readonly Uint8Array[]> {
    const ino = this.#parts.nodes.readHandle(args);
    const { cookie, verifier } = readPosition(args);
    const bytesMax = Math.min(args.u32(), TRANSFER_BYTES_MAX);
    return this.#list(ino, cookie, verifier, { namesMax: bytesMax, bytesMax, isPlus: false }, caller, out);
  }

  /** @returns as `readdir` */
  async readdirplus(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<readonly Uint8Array[]> {
    const ino = this.#parts.nodes.readHandle(args);
    const { cookie, verifier } = readPosition(args);
    const [namesMax, bytesMax] = [args.u32(), Math.min(args.u32(), TRANSFER_BYTES_MAX)];
    return this.#list(ino, cookie, verifier, { namesMax, bytesMax, isPlus: true }, caller, out);
  }

  async close(): Promise<void> {
    for (const verifier of [...this.#open.keys()]) await this.#end(verifier);
  }

  async #list(
    ino: Inode,
    cookie: number,
    verifier: number,
    limits: { readonly namesMax: number; readonly bytesMax: number; readonly isPlus: boolean },
    caller: RpcCaller,
    out: XdrWriter,
  ): Promise<readonly Uint8Array[]> {
    const { nodes, calls, ops } = this.#parts;
    if (nodes.isRemovedFolder(ino)) {
      writeMaybeAttributes(out, await nodes.attributesIfKnown(ino, caller));
      out.u64(0).bool(false).bool(true);
      return [];
    }
    expectGranted(await nodes.folder(ino, caller), caller, MAY_READ);
    const number = await this.#opened(ino, cookie === 0 ? 0 : verifier, caller);
    const listing = this.#open.get(number);
    if (listing === undefined) throw new NfsError(STATUS.jukebox); // closed meanwhile: more listings at once than are kept
    const entries = new EntryWriter(this.#parts, limits);
    try {
      await calls.run('readdir', ino, caller, (ctx) => ops.readdir(ino, listing.handle, cookie, entries, ctx));
    } finally {
      for (const child of entries.lookups) ops.forget(child, 1);
    }
    if (entries.isFull && entries.count === 0) throw new NfsError(STATUS.toosmall);
    writeMaybeAttributes(out, await nodes.attributesIfKnown(ino, caller));
    out.u64(number);
    return [entries.done()];
  }

  /** The number of the listing that the verifier names, or of a new one: after an idle time, or a restart. */
  async #opened(ino: Inode, verifier: number, caller: RpcCaller): Promise<number> {
    const { calls, ops } = this.#parts;
    const known = this.#open.get(verifier);
    if (known?.ino === ino) {
      this.#open.delete(verifier);
      this.#open.set(verifier, known);
      known.usedMs = this.#clock.elapsedMs();
      return verifier;
    }
    await this.#endIdle();
    const { handle } = await calls.run('opendir', ino, caller, (ctx) => ops.opendir(ino, ctx));
    const number = this.#next++;
    this.#open.set(number, { ino, handle, caller, usedMs: this.#clock.elapsedMs() });
    return number;
  }

  async #endIdle(): Promise<void> {
    const nowMs = this.#clock.elapsedMs();
    for (const [verifier, { usedMs }] of [...this.#open]) {
      if (this.#open.size < LISTINGS_MAX && nowMs - usedMs < IDLE_MS_MAX) return;
      await this.#end(verifier);
    }
  }

  async #end(verifier: number): Promise<void> {
    const { calls, ops } = this.#parts;
    const listing = this.#open.get(verifier);
    if (listing === undefined) return;
    this.#open.delete(verifier);
    const { ino, handle, caller } = listing;
    try {
      await calls.run('releasedir', ino, caller, (ctx) => ops.releasedir(ino, handle, ctx));
    } catch {
      // Logged by the calls.
    }
  }
}

function readPosition(args: XdrReader): { cookie: number; verifier: number } {
  return { cookie: args.u64(), verifier: args.u64() };
}

/** Encodes entries until the reply is full. */
class EntryWriter implements DirectorySink {
  readonly wantsEntries: boolean;
  /** Lookups that came with entries. */
  readonly lookups: Inode[] = [];
  isFull = false;
  count = 0;
  readonly #nodes: NfsParts['nodes'];
  readonly #out: XdrWriter;
  readonly #limits: { readonly namesMax: number; readonly bytesMax: number; readonly isPlus: boolean };
  #nameBytes = 0;

  constructor(
    { nodes }: NfsParts,
    limits: { readonly namesMax: number; readonly bytesMax: number; readonly isPlus: boolean },
  ) {
    this.#nodes = nodes;
    this.#limits = limits;
    this.#out = new XdrWriter(Math.min(limits.bytesMax, ENTRIES_BYTES) + ENTRY_BYTES_MAX);
    this.wantsEntries = limits.isPlus;
  }

  add(name: string, ino: Inode, _kind: unknown, cookie: number, entry: Entry | null): boolean {
    const out = this.#out;
    const { namesMax, bytesMax, isPlus } = this.#limits;
    const start = out.length;
    out.bool(true).u64(ino).text(name).u64(cookie);
    const nameBytes = this.#nameBytes + out.length - start;
    if (isPlus) this.#addPlus(ino, entry);
    if (FRAME_BYTES + out.length > bytesMax || nameBytes > namesMax) {
      out.cut(start);
      this.isFull = true;
      return false;
    }
    this.#nameBytes = nameBytes;
    this.count++;
    if (entry !== null && name !== '.' && name !== '..') this.lookups.push(ino);
    return true;
  }

  /** All entries, and whether they are the last ones. */
  done(): Buffer {
    return this.#out.bool(false).bool(!this.isFull).done();
  }

  #addPlus(ino: Inode, entry: Entry | null): void {
    writeMaybeAttributes(this.#out, entry === null ? null : this.#nodes.asShown(entry.attributes));
    this.#out.bool(entry !== null);
    if (entry !== null) this.#nodes.writeHandle(this.#out, ino);
  }
}
