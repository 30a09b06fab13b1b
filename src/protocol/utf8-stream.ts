import { TextDecoder } from 'node:util';

/**
 * UTF-8 that arrives in pieces, as text; strict.
 *
 * Not `TextDecoder` with `stream: true`: in Node that goes through another decoder, whose strings take two bytes for every
 * character, also of ASCII. Here every piece is decoded as a whole, up to its last complete character; the up to three bytes
 * after that wait for the next one. The parser is no faster for it (measured); its strings are half as large.
 */
export class Utf8Stream {
  /** Takes a byte order mark off: only at the very beginning. */
  readonly #first = new TextDecoder('utf-8', { fatal: true });
  readonly #rest = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  #carried: Uint8Array = NOTHING;
  #begun = false;

  /** @throws TypeError with code ERR_ENCODING_INVALID_ENCODED_DATA for what is not UTF-8 */
  decode(piece: Uint8Array): string {
    const bytes = this.#carried.byteLength === 0 ? piece : Buffer.concat([this.#carried, piece]);
    const whole = bytes.byteLength - incompleteTail(bytes);
    this.#carried = whole === bytes.byteLength ? NOTHING : bytes.slice(whole);
    if (whole === 0) return '';
    return this.#decoder().decode(bytes.subarray(0, whole));
  }

  /** Nothing follows. @throws TypeError as `decode`, where half a character was left */
  end(): void {
    if (this.#carried.byteLength > 0) this.#rest.decode(this.#carried);
  }

  #decoder(): TextDecoder {
    const decoder = this.#begun ? this.#rest : this.#first;
    this.#begun = true;
    return decoder;
  }
}

const NOTHING = new Uint8Array(0);

/** How many bytes at the end begin a character that is not complete. */
function incompleteTail(bytes: Uint8Array): number {
  const { length } = bytes;
  for (let back = 1; back <= Math.min(3, length); back++) {
    const byte = bytes[length - back] as number;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue; // continues a character: its first byte lies before
    const characterLength = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return characterLength > back ? back : 0;
  }
  return 0;
}
