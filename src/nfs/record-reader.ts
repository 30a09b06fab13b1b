import { XdrError } from './xdr.ts';

/** In the header of a fragment, beside its length. */
export const LAST_FRAGMENT = 0x8000_0000;
const HEADER_BYTES = 4;
/** Clients send one fragment for each record. */
const FRAGMENTS_MAX = 64;
/** Shorter fragments come from Node's own pool, or fit into one chunk of the stream. */
const SPARE_BYTES_MIN = 256 * 1024;
const SPARE_MAX = 4;

/** The shortest rest of a record that is worth a read(2) of its own: the size of Node's chunks. */
const DIRECT_BYTES_MIN = 64 * 1024;

interface Fragment {
  readonly bytes: Buffer;
  have: number;
  readonly isLast: boolean;
}

/** Splits a byte stream into records (RFC 5531, section 11). Holds one record at most, of a bounded length. */
export class RecordReader {
  readonly #bytesMax: number;
  readonly #onRecord: (record: Buffer) => void;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  /** The fragment in progress; null while its header is being read. */
  #fragment: Fragment | null = null;
  /** The fragments of the record before the one in progress. */
  #earlier: Buffer[] = [];
  #earlierBytes = 0;
  /** Memory for long fragments. A fresh megabyte costs more page faults than its bytes cost to copy. */
  readonly #spare: Buffer[] = [];

  constructor(deps: { readonly bytesMax: number; readonly onRecord: (record: Buffer) => void }) {
    this.#bytesMax = deps.bytesMax;
    this.#onRecord = deps.onRecord;
  }

  /**
   * Takes the next bytes of the stream. A record that lies in one chunk shares its memory.
   *
   * @throws XdrError for a record that is too long, or in too many fragments: the stream cannot be continued
   */
  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.byteLength) {
      if (this.#fragment === null) {
        at += this.#readHeader(chunk, at);
        if (this.#headerBytes < HEADER_BYTES) return;
        const header = this.#header.readUInt32BE(0);
        const bytes = header % LAST_FRAGMENT;
        const isLast = header >= LAST_FRAGMENT;
        this.#headerBytes = 0;
        this.#check(bytes);
        const isWhole = chunk.byteLength - at >= bytes;
        if (isWhole) {
          this.#ended(chunk.subarray(at, at + bytes), isLast);
          at += bytes;
          continue;
        }
        this.#fragment = { bytes: this.#memory(bytes), have: 0, isLast };
      }
      const fragment = this.#fragment;
      const taken = chunk.copy(fragment.bytes, fragment.have, at);
      fragment.have += taken;
      at += taken;
      if (!this.#endFull(fragment)) return;
    }
  }

  /** The place of the next bytes of a long record; null between records, and in a short one. */
  get place(): Buffer | null {
    if (this.#fragment === null) return null;
    const { bytes, have } = this.#fragment;
    return bytes.byteLength - have < DIRECT_BYTES_MIN ? null : bytes.subarray(have);
  }

  /** So many bytes were put into `place`. @throws XdrError as `push` */
  filled(bytes: number): void {
    if (this.#fragment === null) return;
    this.#fragment.have += bytes;
    this.#endFull(this.#fragment);
  }

  /** The record and all that shares its memory are not used any more. */
  giveBack(record: Buffer): void {
    const { buffer, byteOffset } = record;
    if (byteOffset !== 0 || buffer.byteLength !== this.#bytesMax || this.#spare.length >= SPARE_MAX) return;
    this.#spare.push(Buffer.from(buffer, 0, this.#bytesMax));
  }

  #memory(bytes: number): Buffer {
    if (bytes < SPARE_BYTES_MIN) return Buffer.allocUnsafe(bytes);
    return (this.#spare.pop() ?? Buffer.allocUnsafeSlow(this.#bytesMax)).subarray(0, bytes);
  }

  #readHeader(chunk: Buffer, at: number): number {
    const taken = chunk.copy(this.#header, this.#headerBytes, at, at + HEADER_BYTES - this.#headerBytes);
    this.#headerBytes += taken;
    return taken;
  }

  #check(bytes: number): void {
    if (this.#earlierBytes + bytes > this.#bytesMax)
      throw new XdrError(`a record of more than ${this.#bytesMax} bytes`);
    if (this.#earlier.length >= FRAGMENTS_MAX) throw new XdrError(`a record of more than ${FRAGMENTS_MAX} fragments`);
  }

  #endFull({ bytes, have, isLast }: Fragment): boolean {
    if (have < bytes.byteLength) return false;
    this.#fragment = null;
    this.#ended(bytes, isLast);
    return true;
  }

  #ended(bytes: Buffer, isLast: boolean): void {
    if (!isLast) {
      this.#earlier.push(bytes);
      this.#earlierBytes += bytes.byteLength;
      return;
    }
    const record = this.#earlier.length === 0 ? bytes : Buffer.concat([...this.#earlier, bytes]);
    this.#earlier = [];
    this.#earlierBytes = 0;
    this.#onRecord(record);
  }
}
