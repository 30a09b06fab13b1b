import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import {
  MAP_SHARED,
  O_APPEND,
  O_CREAT,
  O_RDONLY,
  O_RDWR,
  O_TRUNC,
  O_WRONLY,
  PROT_READ,
} from '../conformance/file-api.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';
import { titled } from '../harness/requirement.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';

/**
 * Another machine saves a file while programs have it open here. The kernel has one size and one set of pages for an inode, and goes by
 * them without asking: it cuts a longer version short, and fills up a shorter one with zeros.
 */

const PIECE_BYTES = 64 * 1024;
const SHORT_BYTES = 700_001;
const LONG_BYTES = 1_300_003;

const missing = missingForMounts();
describe.skipIf(missing !== null)(titled('a file that is replaced while it is read', missing), () => {
  let mount: MountFixture;
  let other: OtherProgram;
  let reader: SyscallProcess;
  let bystander: SyscallProcess;
  beforeAll(async () => {
    mount = await MountFixture.start();
    other = await OtherProgram.signIn(mount.server.account);
    reader = await SyscallProcess.start(mount.directory);
    bystander = await SyscallProcess.start(mount.directory);
  });
  afterAll(async () => {
    await reader?.dispose();
    await bystander?.dispose();
    await mount?.dispose();
  });

  /** A file of the other machine, that the kernel has been told of; what replaces it is heard of when `replace` returns. */
  async function filled(name: string, letter: string, sizeBytes: number) {
    const url = await other.client.createFilled(other.systemFolder('2'), name, Buffer.alloc(sizeBytes, letter));
    await mount.cfs(['refresh']);
    expect((await reader.stat(name)).sizeBytes).toBe(sizeBytes);
    return async (next: string, nextBytes: number): Promise<void> => {
      const version = (await other.client.send('POST', `${url}/version`)).headers.location as string;
      await other.client.send('PUT', `${version}/data`, { body: Buffer.alloc(nextBytes, next) });
      await mount.cfs(['refresh']);
    };
  }

  /** What read(2) gives until it says that the file ends, while others look at the file, as `LETTER*LENGTH …`. */
  async function readOut(fd: number, name: string): Promise<string> {
    const pieces: Uint8Array[] = [];
    for (;;) {
      const [piece] = await Promise.all([reader.process.readHere(fd, PIECE_BYTES), bystander.stat(name)]);
      if (piece.length === 0) return runsOf(Buffer.concat(pieces));
      pieces.push(piece);
    }
  }

  async function mapped(fd: number, sizeBytes: number): Promise<string> {
    const mapping = await reader.process.mmap(fd, 0, sizeBytes, PROT_READ, MAP_SHARED);
    const bytes = await reader.process.peek(mapping, 0, sizeBytes);
    await reader.process.munmap(mapping);
    return runsOf(bytes);
  }

  /** copy_file_range(2), which is how cp(1) reads. */
  async function copied(fd: number, name: string): Promise<string> {
    const to = await reader.open(`copy of ${name}`, O_CREAT | O_WRONLY);
    for (let at = 0, got = 1; got > 0; at += got) got = await reader.process.copyFileRange(fd, at, to, at, PIECE_BYTES);
    await reader.close(to);
    const copy = await reader.open(`copy of ${name}`, O_RDONLY);
    const found = await readOut(copy, `copy of ${name}`);
    await reader.close(copy);
    return found;
  }

  /** [S-read-2] */
  test.each([
    { how: 'shorter', begun: true, from: LONG_BYTES, to: SHORT_BYTES },
    { how: 'shorter', begun: false, from: LONG_BYTES, to: SHORT_BYTES },
    { how: 'longer', begun: true, from: SHORT_BYTES, to: LONG_BYTES },
    { how: 'longer', begun: false, from: SHORT_BYTES, to: LONG_BYTES },
  ])(
    'a file that is replaced by a $how one is read completely by its open descriptors (begun: $begun)',
    async ({ how, begun, from, to }) => {
      onTestFailed(mount.printLogs);
      const name = `${how} ${begun}`;
      const replace = await filled(name, 'A', from);
      const fds = [];
      for (let n = 0; n < 3; n++) fds.push(await reader.open(name, O_RDONLY));
      const [read = 0, map = 0, copy = 0] = fds;
      if (begun) for (const fd of fds) await reader.read(fd, 0, 10);

      await replace('B', to);

      expect(await readOut(read, name)).toBe(`A*${from}`);
      expect(await mapped(map, from)).toBe(`A*${from}`);
      expect(await copied(copy, name)).toBe(`A*${from}`);
      expect((await reader.fstat(read)).sizeBytes).toBe(from);
      await expect.poll(async () => (await bystander.stat(name)).sizeBytes).toBe(to);
      expect((await reader.fstat(read)).ino).toBe((await bystander.stat(name)).ino);

      const next = await reader.open(name, O_RDONLY);
      expect(await readOut(next, name)).toBe(`B*${to}`);
      expect(await mapped(next, to)).toBe(`B*${to}`);
      expect(await mapped(map, from)).toBe(`A*${from}`);
      for (const fd of [...fds, next]) await reader.close(fd);
      const last = await reader.open(name, O_RDONLY);
      expect(await readOut(last, name)).toBe(`B*${to}`);
      await reader.close(last);
    },
  );

  /** [S-follow-1] */
  test('tail -f on a file that is replaced shows the appended bytes and the replacement', async () => {
    onTestFailed(mount.printLogs);
    const replace = await filled('log', 'A', SHORT_BYTES);
    const fd = await reader.open('log', O_RDONLY);
    const half = await reader.open('log', O_RDONLY);
    await reader.read(half, 0, 10);
    expect(await readOut(fd, 'log')).toBe(`A*${SHORT_BYTES}`);
    const waited = (sizeBytes: number) =>
      expect.poll(async () => (await reader.fstat(fd)).sizeBytes, { timeout: 25_000, interval: 500 }).toBe(sizeBytes);

    await replace('A', SHORT_BYTES + 5);
    // Somebody else is in the middle of it.
    for (let looks = 0; looks < 4; looks++) await waited(SHORT_BYTES);
    expect((await reader.read(half, SHORT_BYTES - 10, 100)).length).toBe(10);
    for (let looks = 0; looks < 4; looks++) await waited(SHORT_BYTES);
    expect(await readOut(half, 'log')).toBe(`A*${SHORT_BYTES}`);
    await reader.close(half);
    await waited(SHORT_BYTES + 5);
    expect(await readOut(fd, 'log')).toBe('A*5');
    await replace('B', SHORT_BYTES + 9);
    await waited(SHORT_BYTES + 9);
    expect(await readOut(fd, 'log')).toBe('B*4');
    await replace('C', 7);
    await waited(7);
    expect(runsOf(await reader.read(fd, 0, PIECE_BYTES))).toBe('C*7');
    await reader.close(fd);
  });

  test('a file that is replaced twice while it is read is three inodes to the kernel until they are closed', async () => {
    onTestFailed(mount.printLogs);
    const replace = await filled('twice', 'A', LONG_BYTES);
    const first = await reader.open('twice', O_RDONLY);
    await reader.read(first, 0, 10);
    await replace('B', SHORT_BYTES);
    await expect.poll(async () => (await bystander.stat('twice')).sizeBytes).toBe(SHORT_BYTES);
    const second = await reader.open('twice', O_RDONLY);
    await reader.read(second, 0, 10);
    await replace('C', LONG_BYTES + 1);
    await expect.poll(async () => (await bystander.stat('twice')).sizeBytes).toBe(LONG_BYTES + 1);
    const third = await reader.open('twice', O_RDONLY);

    expect(await readOut(second, 'twice')).toBe(`B*${SHORT_BYTES}`);
    expect(await readOut(first, 'twice')).toBe(`A*${LONG_BYTES}`);
    expect(await readOut(third, 'twice')).toBe(`C*${LONG_BYTES + 1}`);
    for (const fd of [first, second, third]) await reader.close(fd);

    await replace('D', 10);
    await expect.poll(async () => (await bystander.stat('twice')).sizeBytes).toBe(10);
    const fourth = await reader.open('twice', O_RDONLY);
    expect(await readOut(fourth, 'twice')).toBe('D*10');
    await reader.close(fourth);
  });

  test('a replaced file that is changed here shows the change to new opens and not to older descriptors', async () => {
    onTestFailed(mount.printLogs);
    const replace = await filled('changed', 'A', SHORT_BYTES);
    const older = await reader.open('changed', O_RDONLY);
    await reader.read(older, 0, 10);
    await replace('B', LONG_BYTES);
    await expect.poll(async () => (await bystander.stat('changed')).sizeBytes).toBe(LONG_BYTES);

    const writer = await bystander.open('changed', O_WRONLY);
    await bystander.write(writer, LONG_BYTES, Buffer.from('CC'));
    expect((await reader.stat('changed')).sizeBytes).toBe(LONG_BYTES + 2);
    const newer = await reader.open('changed', O_RDONLY);
    expect(await readOut(newer, 'changed')).toBe(`B*${LONG_BYTES} C*2`);
    expect(await readOut(older, 'changed')).toBe(`A*${SHORT_BYTES}`);
    await bystander.close(writer);
    await reader.close(newer);

    // The mode is the file's, by whichever number the kernel has it.
    await reader.process.fchmod(older, 0o640);
    await expect.poll(async () => (await bystander.stat('changed')).mode).toBe(0o640);
    await reader.unlink('changed');
    expect(await mapped(older, SHORT_BYTES)).toBe(`A*${SHORT_BYTES}`);
    expect((await reader.fstat(older)).nlink).toBe(0);
    await reader.close(older);
    await mount.sync();
  });

  /** A bind mount of a file, a watch on it: whatever keeps the kernel's inode without having the file open. */
  const O_PATH = 0o10000000;

  async function readAt(who: SyscallProcess, path: string): Promise<string> {
    const fd = await who.open(path, O_RDONLY);
    const pieces: Uint8Array[] = [];
    for (let piece = await who.process.readHere(fd, PIECE_BYTES); piece.length > 0; ) {
      pieces.push(piece);
      piece = await who.process.readHere(fd, PIECE_BYTES);
    }
    await who.close(fd);
    return runsOf(Buffer.concat(pieces));
  }

  /** Written anew, here. */
  async function written(name: string, bytes: Buffer): Promise<void> {
    const fd = await bystander.open(name, O_WRONLY | O_TRUNC);
    for (let at = 0; at < bytes.length; at += PIECE_BYTES)
      await bystander.write(fd, at, bytes.subarray(at, at + PIECE_BYTES));
    await bystander.close(fd);
  }

  test.each([{ byName: false }, { byName: true }])(
    'a replaced file shows its new bytes through a path that was resolved before (read by its name first: $byName)',
    async ({ byName }) => {
      onTestFailed(mount.printLogs);
      const name = `path ${byName}`;
      const replace = await filled(name, 'A', SHORT_BYTES);
      const place = await reader.open(name, O_PATH);
      const path = `/proc/self/fd/${place}`;
      const older = await reader.open(name, O_RDONLY);
      expect(await readOut(older, name)).toBe(`A*${SHORT_BYTES}`);
      await replace('B', SHORT_BYTES);
      if (byName) expect(await readAt(bystander, name)).toBe(`B*${SHORT_BYTES}`);

      expect(await readAt(reader, path)).toBe(`B*${SHORT_BYTES}`);
      expect((await reader.read(older, 0, 10)).every((byte) => byte === 0x41)).toBe(true);
      await reader.close(older);
      expect(await readAt(reader, path)).toBe(`B*${SHORT_BYTES}`);

      await written(name, Buffer.alloc(SHORT_BYTES, 'C'));
      expect(await readAt(bystander, name)).toBe(`C*${SHORT_BYTES}`);
      expect(await readAt(reader, path)).toBe(`C*${SHORT_BYTES}`);
      await written(name, Buffer.alloc(LONG_BYTES, 'D'));
      expect((await reader.fstat(place)).sizeBytes).toBe(LONG_BYTES);
      expect(await readAt(reader, path)).toBe(`D*${LONG_BYTES}`);
      await reader.close(place);
    },
  );

  test('a replaced file that is open for writing and rewritten has one size for all descriptors', async () => {
    onTestFailed(mount.printLogs);
    const replace = await filled('beside', 'A', SHORT_BYTES);
    const older = await reader.open('beside', O_RDWR);
    await reader.read(older, 0, 10);
    await replace('B', LONG_BYTES);
    await reader.write(older, 0, Buffer.from('half'));

    const appended = await bystander.open('beside', O_WRONLY | O_APPEND);
    await bystander.write(appended, 0, Buffer.from('more'));
    await bystander.close(appended);
    await written('beside', Buffer.from('CCC'));

    expect((await bystander.stat('beside')).sizeBytes).toBe(3);
    expect(await readAt(bystander, 'beside')).toBe('C*3');
    await reader.close(older);
    await mount.sync();
  });
});

function runsOf(bytes: Uint8Array): string {
  const runs: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    let end = at + 1;
    while (end < bytes.length && bytes[end] === bytes[at]) end++;
    runs.push(`${bytes[at] === 0 ? 'zeros' : String.fromCharCode(bytes[at] as number)}*${end - at}`);
    at = end;
  }
  return runs.join(' ');
}
