import { hash, randomBytes } from 'node:crypto';
import type { Inode } from '../base/vocabulary.ts';
import { NfsError, STATUS } from './protocol.ts';

const KEY_BYTES = 32;
const INODE_BYTES = 8;
const MAC_BYTES = 16;
const HANDLE_BYTES = INODE_BYTES + MAC_BYTES;
/** Handles whose code was verified or computed: an HMAC takes longer than most replies. */
const KNOWN_MAX = 20_000;

/**
 * File handles: the inode, and a code that only the processes of this mount can compute. They name a node, never a path: a handle outlives a
 * rename, and inodes are never reused.
 */
export class FileHandles {
  #key: Buffer;
  /** The key, and room for an inode. */
  readonly #input = Buffer.alloc(KEY_BYTES + INODE_BYTES);
  readonly #known = new Map<Inode, Buffer>();

  /** @param key of the mount that is continued */
  constructor(key: Buffer = randomBytes(KEY_BYTES)) {
    this.#key = key;
    this.#key.copy(this.#input);
  }

  /** A successor with this key accepts the same handles. */
  get key(): Buffer {
    return this.#key;
  }

  of(ino: Inode): Buffer {
    const known = this.#known.get(ino);
    if (known !== undefined) return known;
    const handle = Buffer.alloc(HANDLE_BYTES);
    handle.writeBigUInt64BE(BigInt(ino), 0);
    // Of one length each, and cut: a plain hash of key and inode cannot be extended.
    this.#input.writeBigUInt64BE(BigInt(ino), KEY_BYTES);
    hash('sha256', this.#input, 'buffer').copy(handle, INODE_BYTES, 0, MAC_BYTES);
    if (this.#known.size >= KNOWN_MAX) this.#known.clear();
    this.#known.set(ino, handle);
    return handle;
  }

  /** @throws NfsError (badhandle) for a handle that no process of this mount made */
  inodeOf(handle: Buffer): Inode {
    if (handle.byteLength !== HANDLE_BYTES) throw new NfsError(STATUS.badhandle);
    const ino = (handle.readUInt32BE(0) * 2 ** 32 + handle.readUInt32BE(4)) as Inode;
    if (!Number.isSafeInteger(ino) || ino <= 0) throw new NfsError(STATUS.badhandle);
    // All bytes, whichever differ: as timingSafeEqual, which takes longer than the rest of a call's arguments.
    const known = this.of(ino);
    let difference = 0;
    for (let at = 0; at < HANDLE_BYTES; at++) difference |= (known[at] ?? 0) ^ (handle[at] ?? 0);
    if (difference !== 0) throw new NfsError(STATUS.badhandle);
    return ino;
  }

  /** From now on no handle made so far is valid. */
  revoke(): void {
    this.#key = randomBytes(KEY_BYTES);
    this.#key.copy(this.#input);
    this.#known.clear();
  }
}
