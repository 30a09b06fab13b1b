import { tmpdir } from 'node:os';
import { freeBytesOf } from '../../src/base/free-bytes.ts';

const MEMORY = '/dev/shm';
/** More than all tests that use it leave there at once. A container may have 64 MiB. */
const ROOM_BYTES = 2 * 1024 ** 3;

/** Where syncing costs nothing: memory, if there is room. */
export const FAST_DISK = (freeBytesOf(MEMORY) ?? 0) >= ROOM_BYTES ? MEMORY : tmpdir();
