import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FsError } from '../../src/base/errors.ts';
import type { Inode } from '../../src/base/vocabulary.ts';
import type { Attributes } from '../../src/kernel/binding.ts';
import { stateOfStatus } from '../../src/kernel/caller-signals.ts';
import { DirectoryWriter } from '../../src/kernel/directory-writer.ts';
import { parseMountInfo } from '../../src/kernel/mount-table.ts';
import { MASKABLE_FEATURES, negotiate } from '../../src/kernel/negotiation.ts';
import { NodeIds } from '../../src/kernel/node-ids.ts';
import { Wire } from '../../src/kernel/wire.ts';

const safe = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });

test('numbers of 64 bits come back, negative seconds too', () => {
  const region = new ArrayBuffer(64);
  const wire = new Wire(region);
  const view = new DataView(region);

  fc.assert(
    fc.property(fc.integer({ min: -(2 ** 52), max: 2 ** 52 }), safe, (signed, unsigned) => {
      wire.setU64(8, signed);
      expect(view.getBigInt64(8, true)).toBe(BigInt(signed));
      expect(wire.i64(8)).toBe(signed);
      wire.setU64(16, unsigned);
      expect(view.getBigUint64(16, true)).toBe(BigInt(unsigned));
      expect([wire.offset64(16), wire.place64(16)]).toEqual([unsigned, unsigned]);
    }),
  );
  view.setBigUint64(16, 2n ** 60n, true);
  expect(() => wire.offset64(16)).toThrow(new FsError('EFBIG'));
  expect(wire.place64(16)).toBe(Number.MAX_SAFE_INTEGER);
});

test('a moment stays where it is: to the nanosecond where seconds are exact, on its side of 1970 in any case', () => {
  const region = new ArrayBuffer(64);
  const wire = new Wire(region);
  const view = new DataView(region);
  const keptOf = (seconds: bigint): bigint => {
    view.setBigInt64(0, seconds, true);
    view.setUint32(8, 999_999_999, true);
    const { sec, nsec } = wire.timespec(0, 8);
    wire.setU64(16, sec);
    expect(nsec).toBe(BigInt(sec) === seconds ? 999_999_999 : 0);
    return view.getBigInt64(16, true);
  };

  for (const exact of [0n, -1n, 2n ** 31n, -(2n ** 40n), 2n ** 53n - 1n, 1n - 2n ** 53n])
    expect(keptOf(exact)).toBe(exact);
  for (const seconds of [2n ** 53n, 2n ** 62n + 1n, 2n ** 63n - 1n]) {
    expect(keptOf(seconds)).toBe(2n ** 53n - 1n);
    expect(keptOf(-seconds)).toBe(1n - 2n ** 53n);
  }
});

test('names are UTF-8 of at most 255 bytes, or refused', () => {
  const region = new ArrayBuffer(4096);
  const wire = new Wire(region);
  const nameOf = (bytes: Uint8Array): string => {
    wire.bytes.fill(0xee);
    wire.bytes.set(bytes, 40);
    wire.bytes[40 + bytes.length] = 0;
    return wire.name(40, 4000);
  };

  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 60 }), (name) => {
      fc.pre(!name.includes('\0') && Buffer.byteLength(name) <= 255);
      expect(nameOf(Buffer.from(name))).toBe(name);
    }),
  );
  expect(() => nameOf(Buffer.from([0x61, 0xff]))).toThrow(expect.objectContaining({ errno: 'EILSEQ' }));
  expect(() => nameOf(Buffer.from([0xed, 0xa0, 0x80]))).toThrow(expect.objectContaining({ errno: 'EILSEQ' })); // a surrogate
  expect(() => nameOf(Buffer.alloc(256, 'n'))).toThrow(expect.objectContaining({ errno: 'ENAMETOOLONG' }));
  expect(nameOf(Buffer.alloc(255, 'n'))).toHaveLength(255);
});

/** Entries as the kernel reads them: struct fuse_dirent, each on a boundary of 8 bytes. */
function parsed(bytes: Buffer, plus: boolean): { name: string; ino: number; cookie: number; nodeid: number | null }[] {
  const entries = [];
  for (let at = 0; at < bytes.length; ) {
    const dirent = at + (plus ? 128 : 0);
    const nameBytes = bytes.readUInt32LE(dirent + 16);
    entries.push({
      name: bytes.toString('utf8', dirent + 24, dirent + 24 + nameBytes),
      ino: Number(bytes.readBigUInt64LE(dirent)),
      cookie: Number(bytes.readBigUInt64LE(dirent + 8)),
      nodeid: plus ? Number(bytes.readBigUInt64LE(at)) : null,
    });
    at = dirent + ((24 + nameBytes + 7) & ~7);
  }
  return entries;
}

test('a listing holds exactly what fits, whether it is answered at once or later', () => {
  const name = fc
    .string({ unit: 'grapheme', minLength: 1, maxLength: 40 })
    .filter((text) => Buffer.byteLength(text) <= 255);
  fc.assert(
    fc.property(
      fc.array(name, { maxLength: 40 }),
      fc.integer({ min: 200, max: 2000 }),
      fc.boolean(),
      fc.nat(40),
      (names, capacity, plus, detachAt) => {
        const wire = new Wire(new ArrayBuffer(4096));
        wire.bytes.fill(0xee);
        const writer = new DirectoryWriter({
          nodeIds: new NodeIds(),
          wire,
          wireOf: (region) => new Wire(region),
          start: 16,
          capacity,
          wantsEntries: plus,
        });
        let taken = 0;
        for (const [i, one] of names.entries()) {
          if (i === detachAt) writer.detach();
          const attributes = { ...ATTRIBUTES, ino: (i + 10) as Inode };
          if (!writer.add(one, attributes.ino, 'file', i + 1, { attributes, entryTimeoutMs: 1, attributeTimeoutMs: 1 }))
            break;
          taken++;
        }
        writer.copyTo(wire, 16);

        expect(writer.usedBytes).toBeLessThanOrEqual(capacity);
        expect(parsed(wire.bytes.subarray(16, 16 + writer.usedBytes), plus)).toEqual(
          names.slice(0, taken).map((one, i) => ({
            name: one,
            ino: i + 10,
            cookie: i + 1,
            nodeid: plus ? (one === '.' || one === '..' ? 0 : i + 10) : null,
          })),
        );
        if (taken < names.length) {
          const next = (plus ? 128 : 0) + ((24 + Buffer.byteLength(names[taken] as string) + 7) & ~7);
          expect(writer.usedBytes + next).toBeGreaterThan(capacity);
        }
        expect(wire.bytes[16 + capacity]).toBe(0xee);
      },
    ),
  );
});

const ATTRIBUTES: Attributes = {
  ...{ ino: 1 as Inode, kind: 'file', mode: 0o644, nlink: 1, uid: 0, gid: 0, sizeBytes: 0, blocks512: 0 },
  ...{ atime: { sec: 0, nsec: 0 }, mtime: { sec: 0, nsec: 0 }, ctime: { sec: 0, nsec: 0 } },
};

test('what is agreed is offered, known and not masked off', () => {
  const all = { major: 7, minor: 45, readAheadBytesMax: 131072, flags: 0xffffffff, flags2: 0xffffffff };

  const full = negotiate(all, []);
  expect([...full.features].sort()).toEqual([...MASKABLE_FEATURES].sort());
  expect(full.writeBytesMax).toBe(1 << 20);
  // bit 16: WRITEBACK_CACHE, 14: READDIRPLUS_AUTO, 15: ASYNC_DIO are never asked for
  expect(full.flags & ((1 << 16) | (1 << 14) | (1 << 15))).toBe(0);
  for (const name of MASKABLE_FEATURES) expect(negotiate(all, [name]).features.has(name)).toBe(false);
  expect(negotiate(all, MASKABLE_FEATURES)).toMatchObject({ flags: 0, flags2: 0, writeBytesMax: 4096, pagesMax: 32 });
  expect(negotiate({ ...all, flags: 0, flags2: 0, minor: 31 }, []).features.size).toBe(0);
  expect(negotiate(all, ['init-ext']).flags2).toBe(0);
});

test('the mount table is read as it is written, blanks and all', () => {
  const table = parseMountInfo(
    [
      '22 1 0:5 / /dev rw,relatime shared:2 - devtmpfs udev rw',
      '40 22 0:39 / /home/u/My\\040Cloud\\134x rw,nosuid shared:7 master:1 - fuse.cfs a\\054b rw,user_id=0',
      '',
    ].join('\n'),
  );

  expect(table).toEqual([
    { directory: '/dev', type: 'devtmpfs', source: 'udev', device: '0:5' },
    { directory: '/home/u/My Cloud\\x', type: 'fuse.cfs', source: 'a,b', device: '0:39' },
  ]);
});

test('a caller wants to stop when a signal says so, not when a timer rings', () => {
  const status = (pending: number[], blocked: number[] = [], shared: number[] = []): string => {
    const mask = (signals: number[]) =>
      signals
        .reduce((sum, signal) => sum | (1n << BigInt(signal - 1)), 0n)
        .toString(16)
        .padStart(16, '0');
    return `Name:\tx\nSigPnd:\t${mask(pending)}\nShdPnd:\t${mask(shared)}\nSigBlk:\t${mask(blocked)}\n`;
  };

  expect(stateOfStatus(status([9]))).toBe('killed');
  expect(stateOfStatus(status([], [], [9, 15]))).toBe('killed');
  expect(stateOfStatus(status([], [], [2]))).toBe('asked');
  expect(stateOfStatus(status([14], [], [17, 28]))).toBe('idle'); // ALRM, CHLD, WINCH
  for (const pause of [19, 20, 21, 22]) expect(stateOfStatus(status([pause]))).toBe('idle'); // STOP, TSTP, TTIN, TTOU
  expect(stateOfStatus(status([2], [], [20]))).toBe('asked');
  expect(stateOfStatus(status([2], [2]))).toBe('idle'); // blocked
  expect(stateOfStatus(status([]))).toBe('idle');
});
