/** Data that does not have the form that its program demands. */
export class XdrError extends Error {
  override readonly name = 'XdrError';
}

const UNIT_BYTES = 4;

/** Decodes XDR (RFC 4506). Every method throws `XdrError` past the end of the data. */
export class XdrReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  u32(): number {
    return this.#bytes.readUInt32BE(this.#skip(4));
  }

  /** An unsigned hyper integer. Above 2^53 the result is rounded, and is larger than every valid size and offset. */
  u64(): number {
    return this.u32() * 2 ** 32 + this.u32();
  }

  /** @throws XdrError except for 0 and 1 */
  bool(): boolean {
    const value = this.u32();
    if (value > 1) throw new XdrError(`${value} is no boolean`);
    return value === 1;
  }

  /** Opaque data of a fixed length. Shares the memory of the record. */
  fixed(bytes: number): Buffer {
    const start = this.#skip(bytes + padding(bytes));
    return this.#bytes.subarray(start, start + bytes);
  }

  /** Opaque data of a variable length. @throws XdrError if it is longer than `bytesMax` */
  opaque(bytesMax: number): Buffer {
    const bytes = this.u32();
    if (bytes > bytesMax) throw new XdrError(`${bytes} bytes where ${bytesMax} are allowed`);
    return this.fixed(bytes);
  }

  /** Passes over opaque data of a variable length. @throws XdrError if it is longer than `bytesMax` */
  skipOpaque(bytesMax: number): void {
    const bytes = this.u32();
    if (bytes > bytesMax) throw new XdrError(`${bytes} bytes where ${bytesMax} are allowed`);
    this.#skip(bytes + padding(bytes));
  }

  /** The rest of the data, which is not consumed. */
  rest(): Buffer {
    return this.#bytes.subarray(this.#at);
  }

  #skip(bytes: number): number {
    const start = this.#at;
    if (bytes > this.#bytes.byteLength - start) throw new XdrError('the data is too short');
    this.#at = start + bytes;
    return start;
  }
}

/** Encodes XDR (RFC 4506) into a buffer that grows. */
export class XdrWriter {
  #bytes: Buffer;
  /** The same memory: V8 compiles its methods to single instructions. */
  #view: DataView;
  #length = 0;

  constructor(capacity = 256) {
    this.#bytes = Buffer.allocUnsafe(capacity);
    this.#view = viewOf(this.#bytes);
  }

  get length(): number {
    return this.#length;
  }

  u32(value: number): this {
    this.#grow(4);
    this.#view.setUint32(this.#length, value);
    this.#length += 4;
    return this;
  }

  u64(value: number): this {
    this.#grow(8);
    setU64(this.#view, this.#length, value);
    this.#length += 8;
    return this;
  }

  bool(value: boolean): this {
    return this.u32(value ? 1 : 0);
  }

  fixed(data: Uint8Array): this {
    const { byteLength } = data;
    this.#grow(byteLength + UNIT_BYTES);
    this.#bytes.set(data, this.#length);
    this.#pad(byteLength);
    return this;
  }

  opaque(data: Uint8Array): this {
    return this.u32(data.byteLength).fixed(data);
  }

  text(text: string): this {
    const lengthAt = this.room(UNIT_BYTES);
    // UTF-8 takes up to three bytes for each unit of a string.
    this.#grow(3 * text.length + UNIT_BYTES);
    const bytes = this.#bytes.write(text, this.#length);
    this.#view.setUint32(lengthAt, bytes);
    this.#pad(bytes);
    return this;
  }

  /** Room for items of a known length, which the caller writes. @returns their position in `view` */
  room(bytes: number): number {
    this.#grow(bytes);
    const at = this.#length;
    this.#length += bytes;
    return at;
  }

  /** The memory up to `length`. It is another one after each write and each room. */
  get view(): DataView {
    return this.#view;
  }

  /** Forgets what was written after the first `length` bytes. */
  cut(length: number): void {
    this.#length = length;
  }

  /** Replaces a word that was written before. */
  patch(at: number, value: number): void {
    this.#view.setUint32(at, value);
  }

  /** What was written so far. Nothing may be written afterwards. */
  done(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Ends an item of so many bytes with zero bytes. */
  #pad(bytes: number): void {
    const end = this.#length + bytes;
    this.#length = end + padding(bytes);
    for (let at = end; at < this.#length; at++) this.#bytes[at] = 0;
  }

  #grow(bytes: number): void {
    const needed = this.#length + bytes;
    if (needed <= this.#bytes.byteLength) return;
    const larger = Buffer.allocUnsafe(Math.max(needed, this.#bytes.byteLength * 2));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
    this.#view = viewOf(larger);
  }
}

function viewOf({ buffer, byteOffset, byteLength }: Buffer): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

/** An unsigned hyper integer. */
export function setU64(view: DataView, at: number, value: number): void {
  view.setUint32(at, Math.floor(value / 2 ** 32));
  view.setUint32(at + 4, value % 2 ** 32);
}

/** The zero bytes that follow opaque data: all items have a multiple of four bytes. */
export function padding(bytes: number): number {
  return (UNIT_BYTES - (bytes % UNIT_BYTES)) % UNIT_BYTES;
}
