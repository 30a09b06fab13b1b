import { crc32 } from 'node:zlib';

/** Texts in PNG files (PNG specification, 5.3 and 11.3.3.3), by which a thumbnail cache describes its files. */

const SIGNATURE = Buffer.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
/** Length and type before the data, checksum after it. */
const FRAME_BYTES = 12;
const TEXT = 'tEXt';
const TEXT_TYPES: readonly string[] = [TEXT, 'zTXt', 'iTXt'];

interface Chunk {
  readonly type: string;
  readonly data: Buffer;
  /** With its frame. */
  readonly whole: Buffer;
}

/**
 * The picture with these texts, after its header, and without those that it had.
 *
 * @param texts keywords and Latin-1 values
 * @returns null if it is no PNG
 */
export function withTexts(png: Uint8Array, texts: Readonly<Record<string, string>>): Buffer | null {
  const chunks = [...chunksOf(png)];
  const [header, ...others] = chunks;
  if (header?.type !== 'IHDR' || chunks.at(-1)?.type !== 'IEND') return null;
  const added = Object.entries(texts).map(([keyword, text]) => chunk(Buffer.from(`${keyword}\0${text}`, 'latin1')));
  const kept = others.filter(({ type }) => !TEXT_TYPES.includes(type)).map(({ whole }) => whole);
  return Buffer.concat([SIGNATURE, header.whole, ...added, ...kept]);
}

/** The texts before the picture's data. @param start of the file; may be cut off */
export function textsOf(start: Uint8Array): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  for (const { type, data } of chunksOf(start)) {
    if (type === 'IDAT') break;
    const end = data.indexOf(0);
    if (type === TEXT && end > 0) texts.set(data.toString('latin1', 0, end), data.toString('latin1', end + 1));
  }
  return texts;
}

/** The whole chunks of a file. */
function* chunksOf(file: Uint8Array): Iterable<Chunk> {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.byteLength);
  if (!bytes.subarray(0, SIGNATURE.length).equals(SIGNATURE)) return;
  for (let at = SIGNATURE.length; at + FRAME_BYTES <= bytes.length; ) {
    const end = at + FRAME_BYTES + bytes.readUInt32BE(at);
    if (end > bytes.length) return;
    const whole = bytes.subarray(at, end);
    yield { type: whole.toString('latin1', 4, 8), data: whole.subarray(8, -4), whole };
    at = end;
  }
}

/** A `tEXt` chunk. */
function chunk(data: Buffer): Buffer {
  const typed = Buffer.concat([Buffer.from(TEXT), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(typed), 4);
  return Buffer.concat([frame.subarray(0, 4), typed, frame.subarray(4)]);
}
