import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { FileSlice, ReadReply } from '../../src/kernel/binding.ts';
import {
  PAYLOAD_BYTES_MAX,
  PIECES_MAX,
  SCRATCH_BYTES,
  SMALL_SLOT_BYTES,
  TAKEN,
} from '../../src/kernel/kernel-addon.ts';
import { NodeIds } from '../../src/kernel/node-ids.ts';
import { IN_NODEID, IN_OPCODE, Opcode, OUT_HEADER_BYTES } from '../../src/kernel/protocol.ts';
import { ReplyWriter } from '../../src/kernel/reply-writer.ts';
import { Request } from '../../src/kernel/request.ts';
import { Wire } from '../../src/kernel/wire.ts';

/** What becomes of the pieces of a read, with an addon that takes what the real one takes (connection.c) and sends nothing. */

const THEIRS = Buffer.alloc(PAYLOAD_BYTES_MAX, 'what lies below ');
const OURS = Buffer.alloc(PAYLOAD_BYTES_MAX, 'WRITTEN OVER IT ');

let directory: string;
let below: number;
let above: number;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-reply-'));
  writeFileSync(join(directory, 'below'), THEIRS);
  writeFileSync(join(directory, 'above'), OURS);
  below = openSync(join(directory, 'below'), 'r');
  above = openSync(join(directory, 'above'), 'r');
});
afterAll(() => {
  closeSync(below);
  closeSync(above);
  rmSync(directory, { recursive: true });
});

/** One byte in every `stride` was written; as slices of the two files, with how many of them were given back. */
function strided(length: number, stride: number): { reply: ReadReply; bytes: Buffer; sent: () => number } {
  const slices: FileSlice[] = [];
  const bytes = Buffer.from(THEIRS.subarray(0, length));
  let sent = 0;
  const add = (fd: number, position: number, end: number): void => {
    if (position < end) slices.push({ fd, position, length: end - position, sent: () => void sent++ });
  };
  for (let at = 0; at < length; at += stride) {
    add(above, at, at + 1);
    add(below, at + 1, Math.min(at + stride, length));
    OURS.copy(bytes, at, at, at + 1);
  }
  return { reply: slices, bytes, sent: () => sent };
}

/** What a READ of `limit` bytes is answered with: in its slot, or by what the addon gathers; and how many pieces that were. */
function answered(reply: ReadReply, limit: number): { bytes: Buffer; pieces: number } {
  const scratchStart = 2 * SMALL_SLOT_BYTES;
  const wire = new Wire(new ArrayBuffer(scratchStart + SCRATCH_BYTES));
  wire.setU32(IN_OPCODE, Opcode.READ);
  wire.setU64(IN_NODEID, 1);
  const request = new Request(wire, 0, new NodeIds(), 0);
  request.limit = limit;
  let gathered: { bytes: Buffer; pieces: number } | null = null;
  const writer = new ReplyWriter({
    wire,
    nodeIds: new NodeIds(),
    connection: {
      scratchStart,
      send: () => 0,
      sendPieces: (_low, _high, pieces) => {
        const bytes = pieces.map((piece) => {
          if (piece instanceof Uint8Array) return piece;
          const [fd, position = 0, length = 0] = piece;
          return (fd === above ? OURS : THEIRS).subarray(position, position + length);
        });
        gathered = { bytes: Buffer.concat(bytes), pieces: pieces.length };
        return pieces.length > PIECES_MAX ? -constants.errno.EINVAL : 0;
      },
    },
    attributesSent: () => {},
    opened: () => {},
    poolAnswers: () => {},
    sent: () => {},
    undelivered: () => {},
  });
  const out = SMALL_SLOT_BYTES;
  const length = writer.write(request, reply, out, false);
  if (length !== TAKEN) {
    return { bytes: Buffer.from(wire.bytes.subarray(out + OUT_HEADER_BYTES, out + length)), pieces: 0 };
  }
  if (gathered === null) throw new Error('nobody was answered');
  return gathered;
}

test.each([
  { what: 'as many pieces as one writev(2) takes', length: 16_000, stride: 32 },
  { what: 'one piece more', length: 16_001, stride: 32 },
  { what: 'one byte in 32 of what the kernel reads ahead first', length: 32 * 1024, stride: 32 },
  { what: 'a whole long read of such', length: PAYLOAD_BYTES_MAX, stride: 32 },
  { what: 'so many that it fits into the slot', length: 4_096, stride: 2 },
])('a read is answered whole, in however many pieces it lies: $what', ({ length, stride }) => {
  const { reply, bytes, sent } = strided(length, stride);

  const got = answered(reply, length);

  expect(got.bytes.equals(bytes)).toBe(true);
  expect(got.pieces).toBeLessThanOrEqual(PIECES_MAX);
  expect(sent()).toBe((reply as readonly FileSlice[]).length);
});

test('the most pieces are as many as the addon says', () => {
  const source = readFileSync(new URL('../../native-deps/fuse-kernel/connection.c', import.meta.url), 'utf8');

  expect(/#define PIECES_MAX (\d+)u/.exec(source)?.[1]).toBe(String(PIECES_MAX));
});

test('more bytes than were asked for are refused, in however many pieces, and none stays leased', () => {
  const { reply, sent } = strided(64_000, 32);

  expect(() => answered(reply, 63_999)).toThrow(expect.objectContaining({ errno: 'EIO' }));
  expect(sent()).toBe((reply as readonly FileSlice[]).length);
});
