import * as zlib from 'node:zlib';
import { loadAddon } from './native.ts';

type Crc32 = (bytes: Uint8Array, before: number) => number;

/**
 * crc32 of long bytes, going on from `before` (0: nothing came before them). The value of `zlib.crc32`, which takes twice as long where zlib
 * was built without the processor's instructions for it, as distributions do. No bytes change nothing; zlib says 0 for some views of none.
 */
export const crc32: Crc32 = fastest();

function fastest(): Crc32 {
  const portable: Crc32 = (bytes, before) => (bytes.byteLength === 0 ? before : zlib.crc32(bytes, before));
  try {
    return loadAddon<{ crc32?: Crc32 }>().crc32 ?? portable;
  } catch {
    return portable; // The addon is not built: who cannot do without it says so.
  }
}
