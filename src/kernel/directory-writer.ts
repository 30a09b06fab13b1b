import type { Inode, NodeKind } from '../base/vocabulary.ts';
import type { DirectorySink, Entry } from './binding.ts';
import type { NodeIds } from './node-ids.ts';
import { DIRENT_BYTES, ENTRY_OUT_BYTES } from './protocol.ts';
import type { Wire } from './wire.ts';

/**
 * Encodes the entries of one READDIR or READDIRPLUS, in the scratch area where the reply is sent from. If the file system answers later,
 * `detach` moves them to memory of its own: the scratch area serves one reply at a time.
 */
export class DirectoryWriter implements DirectorySink {
  readonly wantsEntries: boolean;
  /** Lookups counted for the added entries; undone if the reply is not delivered. */
  readonly lookups: number[] = [];
  readonly #wireOf: (region: ArrayBuffer) => Wire;
  readonly #nodeIds: NodeIds;
  readonly #capacity: number;
  #wire: Wire;
  #start: number;
  #used = 0;

  constructor(options: {
    wire: Wire;
    wireOf: (region: ArrayBuffer) => Wire;
    nodeIds: NodeIds;
    start: number;
    capacity: number;
    wantsEntries: boolean;
  }) {
    this.#wire = options.wire;
    this.#wireOf = options.wireOf;
    this.#nodeIds = options.nodeIds;
    this.#start = options.start;
    this.#capacity = options.capacity;
    this.wantsEntries = options.wantsEntries;
  }

  get usedBytes(): number {
    return this.#used;
  }

  add(name: string, ino: Inode, kind: NodeKind, cookie: number, entry: Entry | null): boolean {
    const wire = this.#wire;
    const entryBytes = this.wantsEntries ? ENTRY_OUT_BYTES : 0;
    const at = this.#start + this.#used;
    const nameAt = at + entryBytes + DIRENT_BYTES;
    const room = this.#capacity - this.#used - entryBytes - DIRENT_BYTES;
    if (room < name.length) return false;
    const nameBytes = room >= name.length * 3 ? wire.bytes.write(name, nameAt) : Buffer.byteLength(name);
    const total = (entryBytes + DIRENT_BYTES + nameBytes + 7) & ~7;
    if (this.#used + total > this.#capacity) return false;
    if (room < name.length * 3) wire.bytes.write(name, nameAt);
    // Padding must not show the bytes of an earlier reply.
    wire.bytes.fill(0, nameAt + nameBytes, at + total);

    if (this.wantsEntries) {
      // `.` and `..` take no lookup (fuse_direntplus_link skips them); nodeid 0 means "no attributes".
      const given = entry !== null && name !== '.' && name !== '..';
      if (given) {
        const nodeId = this.#nodeIds.lookedUp(entry.attributes.ino);
        this.lookups.push(nodeId);
        wire.entry(at, entry, nodeId);
      } else wire.bytes.fill(0, at, at + ENTRY_OUT_BYTES);
    }
    wire.dirent(at + entryBytes, ino, cookie, kind, nameBytes);
    this.#used += total;
    return true;
  }

  /** Continues in memory of its own. */
  detach(): void {
    const own = Buffer.from(new ArrayBuffer(this.#capacity));
    this.#wire.bytes.copy(own, 0, this.#start, this.#start + this.#used);
    this.#wire = this.#wireOf(own.buffer as ArrayBuffer);
    this.#start = 0;
  }

  /** Copies the added entries to `target` at `at`; a no-op while they are still there. */
  copyTo(target: Wire, at: number): void {
    if (target !== this.#wire) this.#wire.bytes.copy(target.bytes, at, this.#start, this.#start + this.#used);
  }
}
