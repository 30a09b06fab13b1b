import type { FileHandle } from 'node:fs/promises';

/** Writes all of `bytes`: one write(2) may take fewer. @param position null: behind the last write */
export async function writeAll(file: FileHandle, bytes: Uint8Array, position: number | null = null): Promise<void> {
  for (let at = 0; at < bytes.byteLength; ) {
    const rest = bytes.subarray(at);
    at += (await file.write(rest, 0, rest.byteLength, position === null ? null : position + at)).bytesWritten;
  }
}
