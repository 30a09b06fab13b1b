import * as zlib from 'node:zlib';
import { loadAddon } from './native.ts';

type Crc32 = (bytes: Uint8Array, before: number) => number;

/**
 * crc32 of large byte arrays, continued from `before` (0 at the start). The value equals `zlib.crc32`, which takes
 * twice as long if zlib was built without processor instructions, as in distributions. Empty input returns `before`;
 * zlib returns 0 for some empty views.
 */
export const crc32: Crc32 = fastest();

function fastest(): Crc32 {
  const portable: Crc32 = (bytes, before) => (bytes.byteLength === 0 ? before : zlib.crc32(bytes, before));
  try {
    return loadAddon<{ crc32?: Crc32 }>().crc32 ?? portable;
  } catch {
    return portable; // The addon is not built: code that requires it reports that.
  }
}
