import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { FsError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { STATUS } from '../../src/nfs/protocol.ts';
import { XdrWriter } from '../../src/nfs/xdr.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { MemoryFileSystem, type MemoryFileSystemOptions } from '../kernel/memory-file-system.ts';
import { NfsClient, ourselves } from './nfs-client.ts';

// The server over TCP, in front of a file system in memory. The client is `nfs-client.ts`.

let clock: ManualClock;
let fileSystem: MemoryFileSystem;
let server: NfsServer;
let client: NfsClient;
let root: Buffer;
const clients: NfsClient[] = [];

async function serve(
  options: MemoryFileSystemOptions = {},
  how: { readOnly?: boolean; allowOther?: boolean } = {},
): Promise<void> {
  clock = new ManualClock();
  fileSystem = new MemoryFileSystem(options);
  server = await NfsServer.start(
    fileSystem,
    { readOnly: false, allowOther: true, ...how },
    { log: silentLogger, clock },
  );
  client = await connected();
  root = await client.mnt(server.exported.path);
  server.admit();
}

async function connected(user = ourselves()): Promise<NfsClient> {
  const made = await NfsClient.connect(server.exported.port, user);
  clients.push(made);
  return made;
}

beforeEach(() => serve());

afterEach(async () => {
  for (const each of clients.splice(0)) each.close();
  await server.close();
  expect({ lookups: fileSystem.lookups, handles: fileSystem.openHandles }).toEqual({ lookups: 0, handles: 0 });
});

const STRANGER = { uid: 4711, gid: 4711 };

/** Ends after so many turns of the event loop, and one. */
async function turns(count: number): Promise<void> {
  for (let turn = 0; turn <= count; turn++) await setImmediate();
}

function status(name: keyof typeof STATUS): object {
  return { status: STATUS[name] };
}

describe('names', () => {
  test('a file that was created is found, with its attributes', async () => {
    const file = await client.create(root, 'file', 'guarded', { mode: 0o640 });

    expect(await client.lookup(root, 'file')).toEqual(file);
    expect(await client.getattr(file)).toMatchObject({ type: 1, mode: 0o640, nlink: 1, sizeBytes: 0 });
  });

  test('an absent name is NOENT, and a name in a file is NOTDIR', async () => {
    const file = await client.create(root, 'file');

    await expect(client.lookup(root, 'absent')).rejects.toMatchObject(status('noent'));
    await expect(client.lookup(file, 'below')).rejects.toMatchObject(status('notdir'));
  });

  test('`.` is the folder itself and `..` its parent', async () => {
    const folder = await client.mkdir(root, 'folder');

    expect(await client.lookup(folder, '.')).toEqual(folder);
    expect(await client.lookup(folder, '..')).toEqual(root);
  });

  test.each(['', 'a/b', 'a\0b', '.', '..'])('the name %j cannot be created', async (name) => {
    await expect(client.create(root, name)).rejects.toMatchObject(status('inval'));
  });

  test('a name of more than 255 bytes is NAMETOOLONG', async () => {
    await expect(client.create(root, 'ä'.repeat(128))).rejects.toMatchObject(status('nametoolong'));
  });

  test('GUARDED over an existing file is EXIST, and UNCHECKED empties it', async () => {
    const file = await client.create(root, 'file');
    await client.write(file, 0, 'bytes', 2);

    await expect(client.create(root, 'file')).rejects.toMatchObject(status('exist'));
    expect(await client.create(root, 'file', 'unchecked', { sizeBytes: 0 })).toEqual(file);
    expect((await client.getattr(file)).sizeBytes).toBe(0);
  });

  test('a repeated EXCLUSIVE creation succeeds with the same verifier and is EXIST with another', async () => {
    const file = await client.create(root, 'file', Buffer.from('verifier'));

    expect(await client.create(root, 'file', Buffer.from('verifier'))).toEqual(file);
    await expect(client.create(root, 'file', Buffer.from('another.'))).rejects.toMatchObject(status('exist'));
  });

  test('a handle outlives the rename of its folder', async () => {
    const folder = await client.mkdir(root, 'old');
    await client.rename(root, 'old', root, 'new');
    const file = await client.create(folder, 'file');

    expect(await client.lookup(await client.lookup(root, 'new'), 'file')).toEqual(file);
  });

  test('REMOVE of a folder is ISDIR, and RMDIR of a folder that is not empty NOTEMPTY', async () => {
    const folder = await client.mkdir(root, 'folder');
    await client.create(folder, 'file');

    await expect(client.remove(root, 'folder')).rejects.toMatchObject(status('isdir'));
    await expect(client.rmdir(root, 'folder')).rejects.toMatchObject(status('notempty'));
  });

  test('a symlink has its target', async () => {
    const link = await client.symlink(root, 'link', '../elsewhere');

    expect(await client.readlink(link)).toBe('../elsewhere');
  });

  test('a device is PERM', async () => {
    const args = new XdrWriter().opaque(root).text('device').u32(4);
    for (let word = 0; word < 8; word++) args.u32(0);

    await expect(client.nfs('mknod', args)).rejects.toMatchObject(status('perm'));
  });
});

describe('bytes', () => {
  test('written bytes are read back, and the end is reported', async () => {
    const file = await client.create(root, 'file');
    const { count, committed } = await client.write(file, 3, 'bytes');

    expect({ count, committed }).toEqual({ count: 5, committed: 0 });
    expect(await client.read(file, 0, 6)).toEqual({ bytes: Buffer.from('\0\0\0byt'), isEnd: false });
    expect(await client.read(file, 6, 100)).toEqual({ bytes: Buffer.from('es'), isEnd: true });
  });

  test('writes of a megabyte that are carried out late and in any order keep their bytes', async () => {
    await server.close();
    const MIB = 1024 * 1024;
    let writes = 0;
    await serve({ before: (op) => (op === 'write' ? turns(++writes % 3) : undefined) });
    const file = await client.create(root, 'file');
    for (let round = 0; round < 3; round++) {
      const pieces = Array.from({ length: 6 }, (_, piece) => Buffer.alloc(MIB, 1 + round * 6 + piece));
      await Promise.all(pieces.map((bytes, piece) => client.write(file, piece * MIB, bytes)));
      for (const [piece, bytes] of pieces.entries())
        expect((await client.read(file, piece * MIB, MIB)).bytes.equals(bytes)).toBe(true);
    }
  });

  test('a FILE_SYNC write is committed, and COMMIT has the verifier of the writes', async () => {
    const file = await client.create(root, 'file');
    const { committed, verifier } = await client.write(file, 0, 'bytes', 2);

    expect(committed).toBe(2);
    expect(await client.commit(file)).toEqual(verifier);
  });

  test('a write reports the size before and after it', async () => {
    const file = await client.create(root, 'file');
    await client.write(file, 0, '12345');
    const { wcc } = await client.write(file, 5, '678');

    expect(wcc).toMatchObject({ before: { sizeBytes: 5 }, after: { sizeBytes: 8 } });
  });

  test('an offset of more than 2^53 is FBIG for a write and the end of file for a read', async () => {
    const file = await client.create(root, 'file');

    await expect(client.write(file, 2 ** 60, 'x')).rejects.toMatchObject(status('fbig'));
    expect(await client.read(file, 2 ** 60, 10)).toEqual({ bytes: Buffer.alloc(0), isEnd: true });
  });

  test('SETATTR changes size and times', async () => {
    const file = await client.create(root, 'file');
    await client.setattr(file, { sizeBytes: 7, mtime: { sec: 1_000_000_000, nsec: 5 } });

    expect(await client.getattr(file)).toMatchObject({ sizeBytes: 7, mtime: { sec: 1_000_000_000, nsec: 5 } });
  });

  test('an idle file is closed after 2 s, and one with uncommitted bytes after 30 s', async () => {
    const file = await client.create(root, 'file');
    await client.write(file, 0, 'bytes');
    clock.advance(29_000);
    expect(fileSystem.openHandles).toBe(1);
    await client.commit(file);
    clock.advance(4_000);

    await expect.poll(() => fileSystem.openHandles).toBe(0);
  });

  test('settle closes a committed file and keeps one that is being written', async () => {
    const [done, open] = [await client.create(root, 'done'), await client.create(root, 'open')];
    await client.write(done, 0, 'bytes', 2);
    await client.write(open, 0, 'bytes');
    await server.opens.settle();

    expect(fileSystem.openHandles).toBe(1);
  });
});

describe('files that are removed while open', () => {
  test('a file that was removed while open has a link: without one, a client takes it for STALE', async () => {
    const file = await client.create(root, 'file');
    await client.rename(root, 'file', root, '.nfs0001');

    expect((await client.getattr(file)).nlink).toBe(1);
    await client.remove(root, '.nfs0001');
  });

  test('a removed or replaced folder is empty and takes no names, for programs that work in it', async () => {
    const [removed, replaced] = [await client.mkdir(root, 'removed'), await client.mkdir(root, 'replaced')];
    await client.mkdir(root, 'new');
    await client.rmdir(root, 'removed');
    await client.rename(root, 'new', root, 'replaced');

    for (const folder of [removed, replaced]) {
      expect((await client.getattr(folder)).type).toBe(2);
      expect(await client.names(folder)).toEqual([]);
      await expect(client.create(folder, 'file')).rejects.toMatchObject(status('noent'));
      await expect(client.lookup(folder, 'file')).rejects.toMatchObject(status('noent'));
    }
  });

  test('a rename to .nfs… removes the name, and the bytes stay until that name is removed', async () => {
    const folder = await client.mkdir(root, 'folder');
    const file = await client.create(folder, 'file');
    await client.write(file, 0, 'bytes', 2);
    await client.rename(folder, 'file', folder, '.nfs0001');

    expect(await client.names(folder)).toEqual(['.', '..']);
    await client.rmdir(root, 'folder');
    await client.write(file, 5, ', more');
    expect((await client.read(file, 0, 100)).bytes.toString()).toBe('bytes, more');

    await client.remove(folder, '.nfs0001');
    await expect(client.getattr(file)).rejects.toMatchObject(status('stale'));
  });

  // The third lookup is that of the removal; the two before it belong to the rename.
  test.each([
    ['lookup', 3],
    ['open', 1],
    ['unlink', 1],
  ])('where the %s of the removal fails, the file keeps its name, and nothing stays open', async (failing, nth) => {
    await server.close();
    let countdown = Number.POSITIVE_INFINITY;
    await serve({
      before: (op) => {
        if (op === failing && --countdown === 0) throw new FsError('EIO');
        return undefined;
      },
    });
    await client.create(root, 'file');
    await server.opens.settle();
    countdown = nth;

    await expect(client.rename(root, 'file', root, '.nfs0001')).rejects.toMatchObject(status('io'));
    expect([fileSystem.openHandles, fileSystem.lookups]).toEqual([0, 0]);
    expect(await client.names(root)).toContain('file');
  });

  test('a removed file that was only read a moment ago is gone immediately', async () => {
    const file = await client.create(root, 'file');
    await client.read(file, 0, 10);
    await client.remove(root, 'file');

    await expect(client.getattr(file)).rejects.toMatchObject(status('stale'));
    expect(fileSystem.openHandles).toBe(0);
  });
});

describe('listings', () => {
  test('a folder of 1,000 entries is listed completely, in many pieces', async () => {
    const names = Array.from({ length: 1000 }, (_, number) => `file-${number}`);
    for (const name of names) await client.create(root, name);

    expect((await client.names(root)).sort()).toEqual(['.', '..', ...names].sort());
  });

  test('entries that are removed during the listing do not disturb the rest', async () => {
    const names = Array.from({ length: 300 }, (_, number) => `file-${number}`);
    for (const name of names) await client.create(root, name);
    const listed = await client.names(root, 1024, async (piece) => {
      for (const name of piece) if (name.startsWith('file')) await client.remove(root, name);
    });

    expect(listed.length).toBe(302);
  });

  test('READDIRPLUS has the attributes of each entry', async () => {
    await client.mkdir(root, 'folder');
    await client.write(await client.create(root, 'file'), 0, 'bytes');
    const entries = await client.entries(root);

    expect(entries.get('folder')).toMatchObject({ type: 2 });
    expect(entries.get('file')).toMatchObject({ type: 1, sizeBytes: 5 });
  });

  test('a reply that has no room for an entry is TOOSMALL', async () => {
    const args = new XdrWriter().opaque(root).u64(0).u64(0).u32(64);

    await expect(client.nfs('readdir', args)).rejects.toMatchObject(status('toosmall'));
  });
});

describe('local users', () => {
  test('the root is given out once, and only for the secret path', async () => {
    const other = await connected();

    await expect(other.mnt(server.exported.path)).rejects.toMatchObject({ status: 13 });
    await expect(other.mnt('/')).rejects.toMatchObject({ status: 13 });
  });

  test('a handle with one changed bit is BADHANDLE', async () => {
    for (let bit = 0; bit < root.byteLength * 8; bit += 5) {
      const forged = Buffer.from(root);
      forged[bit >> 3] = (forged[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      await expect(client.getattr(forged)).rejects.toMatchObject(status('badhandle'));
    }
  });

  test('before the mount command has succeeded, a handle serves nothing but FSINFO and PATHCONF, and there is no second one', async () => {
    await server.close();
    for (const each of clients.splice(0)) each.close();
    server = await NfsServer.start(fileSystem, { readOnly: false, allowOther: true }, { log: silentLogger, clock });
    client = await connected();
    root = await client.mnt(server.exported.path);
    await expect((await connected()).mnt(server.exported.path)).rejects.toMatchObject({ status: 13 });
    await client.nfs('fsinfo', new XdrWriter().opaque(root));
    const waiting = client.getattr(root);
    const first = await Promise.race([
      waiting,
      client.nfs('pathconf', new XdrWriter().opaque(root)).then(() => 'second'),
    ]);

    expect(first).toBe('second');
    server.admit();
    expect(await waiting).toMatchObject({ type: 2 });
  });

  test('without allow_other only the owner and root are served', async () => {
    await server.close();
    await serve({}, { allowOther: false });
    client.user = STRANGER;

    await expect(client.getattr(root)).rejects.toMatchObject(status('acces'));
  });

  test('permission bits bind other users', async () => {
    const folder = await client.mkdir(root, 'folder', 0o755);
    const file = await client.create(folder, 'file', 'guarded', { mode: 0o600 });
    client.user = STRANGER;

    await expect(client.read(file, 0, 1)).rejects.toMatchObject(status('acces'));
    await expect(client.write(file, 0, 'x')).rejects.toMatchObject(status('acces'));
    await expect(client.create(folder, 'other')).rejects.toMatchObject(status('acces'));
    await expect(client.remove(folder, 'file')).rejects.toMatchObject(status('acces'));
    await expect(client.setattr(file, { mode: 0o777 })).rejects.toMatchObject(status('perm'));
    await expect(client.setattr(file, { uid: STRANGER.uid })).rejects.toMatchObject(status('perm'));
    expect(await client.access(folder)).toBe(0x01 | 0x02);
    expect(await client.access(file)).toBe(0);
  });

  test('a user with write permission empties the file of another user, as open(2) with O_TRUNC does', async () => {
    const file = await client.create(root, 'file', 'guarded', { mode: 0o666 });
    await client.write(file, 0, 'bytes', 2);
    client.user = STRANGER;
    await client.setattr(file, { sizeBytes: 0, mtime: 'now' });

    expect((await client.getattr(file)).sizeBytes).toBe(0);
    await expect(client.setattr(file, { mtime: { sec: 5, nsec: 0 } })).rejects.toMatchObject(status('perm'));
  });

  test('in a sticky folder only the owner removes a file', async () => {
    await client.setattr(root, { mode: 0o1777 });
    await client.create(root, 'file', 'guarded', { mode: 0o666 });
    client.user = STRANGER;

    await expect(client.remove(root, 'file')).rejects.toMatchObject(status('perm'));
    await expect(client.rename(root, 'file', root, 'other')).rejects.toMatchObject(status('perm'));
  });

  test('the owner writes a file that its mode protects, because NFS has no open', async () => {
    await client.setattr(root, { mode: 0o777 });
    client.user = STRANGER;
    const file = await client.create(root, 'file', 'guarded', { mode: 0o400 });

    expect((await client.write(file, 0, 'bytes')).count).toBe(5);
  });
});

describe('repeated and slow calls', () => {
  test('a REMOVE that the client repeats is carried out once, over another connection as well', async () => {
    await client.create(root, 'file');
    await client.remove(root, 'file', 4242);
    client = await connected();

    await client.remove(root, 'file', 4242);
    await expect(client.remove(root, 'file', 4243)).rejects.toMatchObject(status('noent'));
  });

  test('a call that takes long is JUKEBOX after 8 s, and the next attempt gets its outcome', async () => {
    await server.close();
    let finish = (): void => {};
    const slow = new Promise<void>((resolve) => {
      finish = resolve;
    });
    let asked = 0;
    await serve({ before: (op) => (op === 'mkdir' && ++asked > 0 ? slow : undefined) });
    const first = client.mkdir(root, 'folder').catch((error: unknown) => error);
    await expect.poll(() => asked).toBe(1);
    clock.advance(8_000);
    expect(await first).toMatchObject(status('jukebox'));

    const second = client.mkdir(root, 'folder');
    finish();
    expect(await second).toEqual(await client.lookup(root, 'folder'));
    expect(asked).toBe(1);
  });

  test('a read that fails at its deadline is JUKEBOX first and IO then, never JUKEBOX permanently', async () => {
    await server.close();
    await serve({ before: (op) => (op === 'read' ? new Promise<void>(() => {}) : undefined) });
    const file = await client.create(root, 'file');
    const outcomes: unknown[] = [];
    for (let attempt = 0; attempt < 8 && outcomes.at(-1) !== STATUS.io; attempt++) {
      const before = outcomes.length;
      const answer = client.read(file, 0, 10).catch((error: { status: number }) => outcomes.push(error.status));
      while (outcomes.length === before) {
        clock.advance(1_000);
        await new Promise((resume) => setTimeout(resume, 1));
      }
      await answer;
    }

    expect(outcomes[0]).toBe(STATUS.jukebox);
    expect(outcomes.at(-1)).toBe(STATUS.io);
  });
});

describe('malformed input', () => {
  test('unknown programs, versions and procedures are refused by RPC, and the connection goes on', async () => {
    const acceptance = async (program: number, version: number, procedure: number, xid: number) =>
      (await client.exchange(client.record(program, version, procedure, Buffer.alloc(0), xid), xid)).acceptance();

    expect(await acceptance(100004, 3, 0, 900)).toBe(1);
    expect(await acceptance(100003, 4, 0, 901)).toBe(2);
    expect(await acceptance(100003, 3, 22, 902)).toBe(3);
    expect(await acceptance(100003, 3, 1, 903)).toBe(4); // no arguments
    expect(await acceptance(100003, 3, 0, 904)).toBe(0);
  });

  test('a record of more than a megabyte closes its connection, and only that', async () => {
    const other = await connected();
    const mark = Buffer.alloc(4);
    mark.writeUInt32BE(0x8000_0000 + 2 ** 30, 0);
    other.sendRaw(mark);
    await other.closed;

    expect(await client.getattr(root)).toMatchObject({ type: 2 });
  });

  test('replies that the connection does not take yet keep the bytes of their time, and their order', async () => {
    const memory = Buffer.alloc(2 ** 20, 'a');
    await server.close();
    await serve({
      read: () => memory,
      before: (op) => void (op === 'write' && memory.fill('b')),
    });
    const file = await client.create(root, 'file');
    const read = async (): Promise<string> => {
      const { bytes } = await client.read(file, 0, 2 ** 20);
      return ['a', 'b'].find((letter) => bytes.equals(Buffer.alloc(2 ** 20, letter))) ?? 'mixed';
    };
    // Sent together: the replies are far more than a connection holds.
    const before = Array.from({ length: 24 }, read);
    const written = client.write(file, 0, 'b');
    const after = Array.from({ length: 4 }, read);
    await written;

    expect(new Set(await Promise.all(before))).toEqual(new Set(['a']));
    expect(new Set(await Promise.all(after))).toEqual(new Set(['b']));
  });

  test('a record in many small chunks and fragments is read as one', async () => {
    const record = client.record(100003, 3, 0, Buffer.alloc(0), 77);
    const reply = client.exchange(client.record(100003, 3, 0, Buffer.alloc(0), 78), 78);
    const half = record.subarray(0, 10);
    const mark = Buffer.alloc(4);
    mark.writeUInt32BE(half.byteLength, 0);
    for (const byte of Buffer.concat([mark, half])) client.sendRaw(Buffer.from([byte]));
    mark.writeUInt32BE(0x8000_0000 + record.byteLength - 10, 0);
    client.sendRaw(Buffer.concat([mark, record.subarray(10)]));

    expect((await reply).acceptance()).toBe(0);
    expect(await client.getattr(root)).toMatchObject({ type: 2 });
  });
});
