import { type Cipher, createCipheriv, randomBytes } from 'node:crypto';
import type { Inode } from '../base/vocabulary.ts';
import { NfsError, STATUS } from './protocol.ts';
import type { XdrReader, XdrWriter } from './xdr.ts';

const KEY_BYTES = 32;
const CODE_BYTES = 16;
const HANDLE_BYTES = 8 + CODE_BYTES;
/** A call into OpenSSL takes as long for one code as for many. Files that appear together have consecutive inodes. */
const GROUP_INODES = 64;
/** A megabyte of codes. */
const GROUPS_MAX = 1_000;

/**
 * File handles: the inode, and a code that only the processes of this mount can compute: the inode, encrypted by AES-256 as a single block. They
 * name a node, never a path: a handle outlives a rename, and inodes are never reused.
 */
export class FileHandles {
  #key: Buffer;
  #cipher: Cipher;
  /** By the number of the group: the codes of its inodes. */
  readonly #codes = new Map<number, DataView>();

  /** @param key of the mount that is continued */
  constructor(key: Buffer = randomBytes(KEY_BYTES)) {
    this.#key = key;
    this.#cipher = cipherOf(key);
  }

  /** A successor with this key accepts the same handles. */
  get key(): Buffer {
    return this.#key;
  }

  /** nfs_fh3 */
  write(out: XdrWriter, ino: Inode): void {
    const codes = this.#codesAround(ino);
    const from = (ino % GROUP_INODES) * CODE_BYTES;
    out.u32(HANDLE_BYTES).u64(ino);
    const at = out.room(CODE_BYTES);
    for (let byte = 0; byte < CODE_BYTES; byte += 4) out.view.setUint32(at + byte, codes.getUint32(from + byte));
  }

  /** nfs_fh3. @throws NfsError (badhandle) for a handle that no process of this mount made */
  read(args: XdrReader): Inode {
    if (args.u32() !== HANDLE_BYTES) throw new NfsError(STATUS.badhandle);
    const ino = args.u64() as Inode;
    if (!Number.isSafeInteger(ino) || ino <= 0) throw new NfsError(STATUS.badhandle);
    // All words, whichever differ: as timingSafeEqual, which takes longer than the rest of a call's arguments.
    const codes = this.#codesAround(ino);
    const from = (ino % GROUP_INODES) * CODE_BYTES;
    let difference = 0;
    for (let byte = 0; byte < CODE_BYTES; byte += 4) difference |= codes.getUint32(from + byte) ^ args.u32();
    if (difference !== 0) throw new NfsError(STATUS.badhandle);
    return ino;
  }

  /** From now on no handle made so far is valid. */
  revoke(): void {
    this.#key = randomBytes(KEY_BYTES);
    this.#cipher = cipherOf(this.#key);
    this.#codes.clear();
  }

  /** The codes of the group that contains the inode. */
  #codesAround(ino: Inode): DataView {
    const group = Math.floor(ino / GROUP_INODES);
    const known = this.#codes.get(group);
    if (known !== undefined) return known;
    const blocks = new DataView(new ArrayBuffer(GROUP_INODES * CODE_BYTES));
    for (let index = 0; index < GROUP_INODES; index++) {
      const member = group * GROUP_INODES + index;
      blocks.setUint32(index * CODE_BYTES, Math.floor(member / 2 ** 32));
      blocks.setUint32(index * CODE_BYTES + 4, member % 2 ** 32);
    }
    const { buffer, byteOffset, byteLength } = this.#cipher.update(blocks);
    const codes = new DataView(buffer, byteOffset, byteLength);
    if (this.#codes.size >= GROUPS_MAX) this.#codes.clear();
    this.#codes.set(group, codes);
    return codes;
  }
}

/** ECB without padding: each block is encrypted for itself, in any number of calls. */
function cipherOf(key: Buffer): Cipher {
  return createCipheriv('aes-256-ecb', key, null).setAutoPadding(false) as Cipher;
}
