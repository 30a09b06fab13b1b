import { StorageError } from '../base/errors.ts';
import type { TableName, Tables } from './tables.ts';

/**
 * Keys as bytes: one byte for the table, then numbers as 8 bytes big endian and texts as UTF-8. The order of the bytes is therefore the
 * order that `StoreReader` promises. All tables share one LMDB database, so a batch over several tables is one transaction.
 */

const TABLE_BYTE: Readonly<Record<TableName, number>> = {
  meta: 1,
  node: 2,
  name: 3,
  resource: 4,
  folder: 5,
  dirty: 6,
  content: 7,
  inline: 8,
  blocks: 9,
  version: 10,
  intent: 11,
  garbage: 12,
  departed: 13,
  local: 14,
};

const TABLE_OF_BYTE = new Map(Object.entries(TABLE_BYTE).map(([table, byte]) => [byte, table as TableName]));

type Part = 'number' | 'text';
const SHAPE: Readonly<Record<TableName, readonly [Part, Part?]>> = {
  meta: ['text'],
  node: ['number'],
  name: ['number', 'text'],
  resource: ['text'],
  folder: ['number'],
  dirty: ['number'],
  content: ['number'],
  inline: ['number'],
  blocks: ['number', 'number'],
  version: ['text'],
  intent: ['number'],
  garbage: ['number'],
  departed: ['text'],
  local: ['number'],
};

const NUMBER_BYTES = 8;
/** Below the limit of LMDB at its page size. */
const KEY_BYTES_MAX = 1900;

/** @throws StorageError for a text that is too long or not well formed (two such texts could have the same bytes) */
export function encodeKey<T extends TableName>(table: T, key: Tables[T]['key']): Buffer {
  const second = SHAPE[table][1];
  if (second === undefined) return encodeParts(table, key as number | string, undefined);
  const tuple = key as readonly [number, number | string];
  return encodeParts(table, tuple[0], tuple[1]);
}

/** The common prefix of all keys of a table, or of those with one first member. */
export function encodePrefix(table: TableName, first?: number): Buffer {
  if (first === undefined) return Buffer.of(TABLE_BYTE[table]);
  return encodeParts(table, first, undefined);
}

/** The smallest key after all keys that start with `prefix`. */
export function behindPrefix(prefix: Uint8Array): Buffer {
  const end = Buffer.from(prefix);
  for (let at = end.byteLength - 1; at >= 0; at--) {
    const byte = end[at] as number;
    if (byte < 0xff) {
      end[at] = byte + 1;
      return end.subarray(0, at + 1);
    }
  }
  throw new RangeError('nothing lies behind this prefix');
}

/** The smallest key after `key`. */
export function behindKey(key: Uint8Array): Buffer {
  const next = Buffer.alloc(key.byteLength + 1);
  next.set(key);
  return next;
}

export function decodeKey(bytes: Uint8Array): { readonly table: TableName; readonly key: never } {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const table = TABLE_OF_BYTE.get(view[0] as number);
  if (table === undefined) throw new StorageError(`the store has a row of an unknown table (${view[0]})`);
  const [first, second] = SHAPE[table];
  const read = (part: Part, at: number): number | string =>
    part === 'text' ? view.toString('utf8', at) : view.readUInt32BE(at) * 0x1_0000_0000 + view.readUInt32BE(at + 4);
  const key = second === undefined ? read(first, 1) : [read(first, 1), read(second, 1 + NUMBER_BYTES)];
  return { table, key: key as never };
}

function encodeParts(table: TableName, first: number | string, second: number | string | undefined): Buffer {
  const length = 1 + partBytes(first) + (second === undefined ? 0 : partBytes(second));
  if (length > KEY_BYTES_MAX) throw new StorageError(`a key of ${length} bytes is too long for table ${table}`);
  const key = Buffer.allocUnsafe(length);
  key[0] = TABLE_BYTE[table];
  const at = writePart(key, first, 1);
  if (second !== undefined) writePart(key, second, at);
  return key;
}

function partBytes(part: number | string): number {
  return typeof part === 'number' ? NUMBER_BYTES : Buffer.byteLength(part);
}

function writePart(key: Buffer, part: number | string, at: number): number {
  if (typeof part === 'string') {
    if (!isWellFormed(part)) throw new StorageError('a key must be well-formed Unicode');
    return at + key.write(part, at);
  }
  key.writeUInt32BE(Math.floor(part / 0x1_0000_0000), at);
  key.writeUInt32BE(part % 0x1_0000_0000, at + 4);
  return at + NUMBER_BYTES;
}

const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

function isWellFormed(text: string): boolean {
  return !LONE_SURROGATE.test(text);
}
