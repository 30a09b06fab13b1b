import { constants, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, connect as netConnect, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { HandleId, Inode } from '../../src/base/vocabulary.ts';
import type { Answer, OpContext, OpenReply, ReadReply } from '../../src/kernel/binding.ts';
import { bytesOf } from '../../src/kernel/gathered-reply.ts';
import { openFlags } from '../../src/kernel/open-flags.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { STATUS } from '../../src/nfs/protocol.ts';
import { seedsOf } from '../harness/seeds.ts';
import { MemoryFileSystem } from '../kernel/memory-file-system.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { NfsClient, NfsStatus, ourselves } from './nfs-client.ts';

/**
 * Random operations over NFS, compared with a model, while connections and servers die. The client is as a kernel's: it repeats every call without
 * a reply under the same number, and writes again what a COMMIT with another verifier did not confirm. A server dies as a process does: the
 * file system keeps what was carried out, and loses what was not committed.
 */

const OPERATIONS = Number(process.env.CFS_NFS_OPERATIONS ?? 300);
const WORKERS = 4;
const NAMES = ['a', 'b', 'c', 'd', 'é', 'x.txt'];
const FILE_BYTES_MAX = 20_000;
const BEGUN = 1;
const [ROW_BYTES, STATE_AT, STATUS_AT] = [32, 20, 24];
/** A user, for what no user does. */
const CONTEXT = { uid: 0, gid: 0, pid: 0, umask: 0, signal: new AbortController().signal };

/** A file system that loses uncommitted bytes with its process. */
class ForgetfulFileSystem extends MemoryFileSystem {
  /** The committed bytes of files with others. */
  readonly #committed = new Map<Inode, Uint8Array>();

  override write(ino: Inode, handle: HandleId, offset: number, data: Uint8Array, ctx: OpContext): Answer<number> {
    if (!this.#committed.has(ino)) {
      const before = super.read(ino, handle, 0, FILE_BYTES_MAX, ctx);
      this.#committed.set(ino, Uint8Array.from(bytesOf(before as ReadReply)));
    }
    return super.write(ino, handle, offset, data, ctx);
  }

  override fsync(ino: Inode, handle: HandleId, dataOnly: boolean, ctx: OpContext): Answer<void> {
    this.#committed.delete(ino);
    return super.fsync(ino, handle, dataOnly, ctx);
  }

  die(): void {
    for (const [ino, bytes] of this.#committed) {
      try {
        const { handle } = super.open(ino, openFlags(constants.O_RDWR), CONTEXT) as OpenReply;
        void super.setattr(ino, { sizeBytes: bytes.byteLength }, null, CONTEXT);
        void super.write(ino, handle, 0, bytes, CONTEXT);
        void super.release(ino, handle, CONTEXT);
      } catch {
        // The file was removed.
      }
    }
    this.#committed.clear();
  }
}

/** Passes connections on to a server that can be replaced. */
class Line {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  target = 0;

  constructor() {
    this.#server = createServer((near) => {
      const far = netConnect(this.target, '127.0.0.1');
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(one);
        one.on('error', () => undefined);
        one.on('close', () => other.destroy());
        one.pipe(other);
      }
    });
  }

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => {
      this.#server.listen(0, '127.0.0.1', resolve);
    });
    return (this.#server.address() as { port: number }).port;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
  }

  close(): void {
    this.cut();
    this.#server.close();
  }
}

interface ModelFile {
  kind: 'file';
  /** What a reader sees. */
  bytes: Buffer;
  mode: number;
  handle: Buffer;
  /** Writes that no COMMIT has confirmed. */
  writes: { readonly offset: number; readonly data: Buffer; readonly verifier: Buffer }[];
}

interface ModelFolder {
  kind: 'folder';
  entries: Map<string, ModelNode>;
  handle: Buffer;
}

type ModelNode = ModelFile | ModelFolder | { kind: 'symlink'; target: string; handle: Buffer };

class Bench {
  readonly fileSystem = new ForgetfulFileSystem();
  readonly line = new Line();
  readonly #folder = mkdtempSync(join(tmpdir(), 'cfs-nfs-restarts-'));
  readonly #callsFile = join(this.#folder, 'calls');
  readonly #dead: NfsServer[] = [];
  #server: NfsServer | null = null;
  restarts = 0;

  async start(): Promise<{ client: NfsClient; root: Buffer }> {
    const server = await this.#serve(null);
    const client = await NfsClient.connect(await this.line.listen(), ourselves(), { isPersistent: true });
    const root = await client.mnt(server.exported.path);
    server.admit();
    return { client, root };
  }

  /** @param hasOutcomes false: the process died before it recorded the outcomes of its latest calls */
  async restart(hasOutcomes: boolean): Promise<void> {
    const old = this.#server;
    if (old === null) throw new Error('not started');
    this.restarts++;
    this.line.target = 0; // refuses
    this.line.cut();
    for (let turn = 0; turn < 4; turn++) await setImmediate(); // what it has begun is carried out: it lives in this process
    this.fileSystem.die();
    if (!hasOutcomes) this.#forgetOutcomes();
    this.#dead.push(old);
    await this.#serve(old);
  }

  async close(): Promise<void> {
    this.line.close();
    await this.#server?.close();
    for (const server of this.#dead) await server.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Of successes only: a call that failed, whose outcome is lost, is taken for a repetition of one that succeeded. */
  #forgetOutcomes(): void {
    const rows = readFileSync(this.#callsFile);
    for (let at = 0; at < rows.byteLength; at += ROW_BYTES)
      if (rows.readUInt32LE(at + STATUS_AT) === STATUS.ok) rows.writeUInt32LE(BEGUN, at + STATE_AT);
    writeFileSync(this.#callsFile, rows);
  }

  async #serve(before: NfsServer | null): Promise<NfsServer> {
    const deps = {
      log: silentLogger,
      clock: systemClock,
      callsFile: this.#callsFile,
      continued: before?.state ?? null,
    };
    const server = await NfsServer.start(this.fileSystem, { readOnly: false, allowOther: true }, deps);
    this.#server = server;
    this.line.target = server.exported.port;
    return server;
  }
}

/** One program: it works in a folder of its own. */
class Worker {
  readonly #client: NfsClient;
  readonly #random: SeededRandom;
  readonly #top: ModelFolder;

  constructor(client: NfsClient, random: SeededRandom, top: Buffer) {
    this.#client = client;
    this.#random = random;
    this.#top = { kind: 'folder', entries: new Map(), handle: top };
  }

  async operation(): Promise<void> {
    const folder = this.#folder();
    const name = this.#pick(NAMES);
    const node = folder.entries.get(name);
    switch (this.#below(12)) {
      case 0:
      case 1:
        return this.#create(folder, name, node);
      case 2:
        return this.#mkdir(folder, name, node);
      case 3:
        return this.#symlink(folder, name, node);
      case 4:
      case 5:
        return this.#write(folder);
      case 6:
        return this.#read(folder);
      case 7:
        return this.#remove(folder, name, node);
      case 8:
        return this.#rmdir(folder, name, node);
      case 9:
        return this.#rename(folder, name, node);
      case 10:
        return this.#setattr(folder);
      default:
        return this.#list(folder);
    }
  }

  /** Compares everything with the model. */
  async verify(folder: ModelFolder = this.#top): Promise<void> {
    await this.#list(folder);
    for (const [name, node] of folder.entries) {
      expect(await this.#client.lookup(folder.handle, name)).toEqual(node.handle);
      if (node.kind === 'folder') await this.verify(node);
      if (node.kind === 'symlink') expect(await this.#client.readlink(node.handle)).toBe(node.target);
      if (node.kind === 'file') await this.#compare(node);
    }
  }

  async #create(folder: ModelFolder, name: string, node: ModelNode | undefined): Promise<void> {
    const isExclusive = this.#below(2) === 0;
    const how = isExclusive ? this.#bytes(8) : 'guarded';
    const handle = await this.#expecting(node === undefined ? 'ok' : 'exist', () =>
      this.#client.create(folder.handle, name, how, { mode: 0o640 }),
    );
    if (handle === null) return;
    folder.entries.set(name, {
      kind: 'file',
      bytes: Buffer.alloc(0),
      mode: isExclusive ? 0o644 : 0o640,
      handle,
      writes: [],
    });
  }

  async #mkdir(folder: ModelFolder, name: string, node: ModelNode | undefined): Promise<void> {
    const wanted = node === undefined ? 'ok' : 'exist';
    const handle = await this.#expecting(wanted, () => this.#client.mkdir(folder.handle, name));
    if (handle !== null) folder.entries.set(name, { kind: 'folder', entries: new Map(), handle });
  }

  async #symlink(folder: ModelFolder, name: string, node: ModelNode | undefined): Promise<void> {
    const target = `to/${this.#below(1000)}`;
    const wanted = node === undefined ? 'ok' : 'exist';
    const handle = await this.#expecting(wanted, () => this.#client.symlink(folder.handle, name, target));
    if (handle !== null) folder.entries.set(name, { kind: 'symlink', target, handle });
  }

  async #write(folder: ModelFolder): Promise<void> {
    const file = this.#file(folder);
    if (file === null) return;
    for (let piece = this.#below(4); piece >= 0; piece--) await this.#writePiece(file);
    if (this.#below(2) === 0) await this.#commit(file);
  }

  async #writePiece(file: ModelFile): Promise<void> {
    const offset = this.#below(FILE_BYTES_MAX / 2);
    const data = this.#bytes(1 + this.#below(FILE_BYTES_MAX / 2));
    const bytes = Buffer.alloc(Math.max(file.bytes.byteLength, offset + data.byteLength));
    file.bytes.copy(bytes);
    data.copy(bytes, offset);
    const { verifier, count } = await this.#client.write(file.handle, offset, data);
    expect(count).toBe(data.byteLength);
    file.bytes = bytes;
    file.writes.push({ offset, data, verifier });
  }

  /** As a kernel: until all writes and a COMMIT have one verifier. */
  async #commit(file: ModelFile): Promise<void> {
    while (file.writes.length > 0) {
      const verifier = await this.#client.commit(file.handle);
      const lost = file.writes.filter((write) => !write.verifier.equals(verifier));
      file.writes = [];
      for (const { offset, data: old } of lost) {
        const data = file.bytes.subarray(offset, offset + old.byteLength); // a kernel sends what the page has now
        const { verifier: again } = await this.#client.write(file.handle, offset, data);
        file.writes.push({ offset, data, verifier: again });
      }
    }
  }

  async #read(folder: ModelFolder): Promise<void> {
    const file = this.#file(folder);
    if (file !== null) await this.#compare(file);
  }

  async #compare(file: ModelFile): Promise<void> {
    await this.#commit(file); // until then a kernel answers from its cache
    const { bytes, isEnd } = await this.#client.read(file.handle, 0, FILE_BYTES_MAX + 1);
    expect({ same: bytes.equals(file.bytes), isEnd }).toEqual({ same: true, isEnd: true });
  }

  async #remove(folder: ModelFolder, name: string, node: ModelNode | undefined): Promise<void> {
    const wanted = node === undefined ? 'noent' : node.kind === 'folder' ? 'isdir' : 'ok';
    await this.#expecting(wanted, () => this.#client.remove(folder.handle, name).then(() => true));
    if (wanted === 'ok') folder.entries.delete(name);
  }

  async #rmdir(folder: ModelFolder, name: string, node: ModelNode | undefined): Promise<void> {
    const wanted =
      node === undefined ? 'noent' : node.kind !== 'folder' ? 'notdir' : node.entries.size > 0 ? 'notempty' : 'ok';
    await this.#expecting(wanted, () => this.#client.rmdir(folder.handle, name).then(() => true));
    if (wanted === 'ok') folder.entries.delete(name);
  }

  async #rename(folder: ModelFolder, name: string, node: ModelNode | undefined): Promise<void> {
    const to = this.#folder();
    const newName = this.#pick(NAMES);
    const target = to.entries.get(newName);
    if (node?.kind === 'folder' && (isBelow(to, node) || to === node)) return;
    if (target?.kind === 'folder' && target.entries.size > 0) return;
    if (node !== undefined && target !== undefined && (node.kind === 'folder') !== (target.kind === 'folder')) return;
    const wanted = node === undefined ? 'noent' : 'ok';
    await this.#expecting(wanted, () => this.#client.rename(folder.handle, name, to.handle, newName).then(() => true));
    if (node === undefined) return;
    folder.entries.delete(name);
    to.entries.set(newName, node);
  }

  async #setattr(folder: ModelFolder): Promise<void> {
    const file = this.#file(folder);
    if (file === null) return;
    if (this.#below(2) === 0) {
      file.mode = 0o600 + this.#below(0o100);
      await this.#client.setattr(file.handle, { mode: file.mode });
    } else {
      await this.#commit(file); // a kernel writes everything before it changes the size
      const sizeBytes = this.#below(FILE_BYTES_MAX);
      await this.#client.setattr(file.handle, { sizeBytes });
      const bytes = Buffer.alloc(sizeBytes);
      file.bytes.copy(bytes);
      file.bytes = bytes;
    }
    expect((await this.#client.getattr(file.handle)).mode & 0o777).toBe(file.mode);
  }

  async #list(folder: ModelFolder): Promise<void> {
    const names = (await this.#client.names(folder.handle)).filter((name) => !['.', '..'].includes(name));
    expect(names.sort()).toEqual([...folder.entries.keys()].sort());
  }

  async #expecting<T>(wanted: 'ok' | keyof typeof STATUS, call: () => Promise<T>): Promise<T | null> {
    try {
      const value = await call();
      expect('ok').toBe(wanted);
      return value;
    } catch (error) {
      if (!(error instanceof NfsStatus)) throw error;
      expect(error.status).toBe(STATUS[wanted]);
      return null;
    }
  }

  #folder(): ModelFolder {
    let folder = this.#top;
    for (;;) {
      const inner = [...folder.entries.values()].filter((node) => node.kind === 'folder');
      if (inner.length === 0 || this.#below(2) === 0) return folder;
      folder = this.#pick(inner);
    }
  }

  #file(folder: ModelFolder): ModelFile | null {
    const files = [...folder.entries.values()].filter((node) => node.kind === 'file');
    return files.length === 0 ? null : this.#pick(files);
  }

  #below(limit: number): number {
    return this.#random.below(limit);
  }

  #pick<T>(items: readonly T[]): T {
    return this.#random.pick(items);
  }

  #bytes(length: number): Buffer {
    return Buffer.alloc(length, `${this.#below(1_000_000)} `);
  }
}

function isBelow(folder: ModelFolder, above: ModelFolder): boolean {
  return [...above.entries.values()].some(
    (node) => node.kind === 'folder' && (node === folder || isBelow(folder, node)),
  );
}

test.each(seedsOf([1, 2, 3]))(
  'operations take effect once while connections and servers die, seed %i',
  {
    timeout: 60_000 + 100 * OPERATIONS,
  },
  async (seed) => {
    const bench = new Bench();
    const random = new SeededRandom(seed);
    const { client, root } = await bench.start();
    const workers: Worker[] = [];
    for (let number = 0; number < WORKERS; number++) {
      const folder = await client.mkdir(root, `worker ${number}`);
      workers.push(new Worker(client, new SeededRandom(seed * 1000 + number), folder));
    }
    let isOver = false;
    let finished = 0;
    const trouble = async (): Promise<void> => {
      while (!isOver) {
        const next = finished + random.below(30);
        await vi.waitUntil(() => isOver || finished >= next, { timeout: 60_000, interval: 1 });
        if (bench.restarts === 0 || random.below(3) === 0) await bench.restart(random.below(2) === 0);
        else client.disconnect();
      }
    };
    const troubled = trouble();
    const work = workers.map(async (worker) => {
      for (let operation = 0; operation < OPERATIONS / WORKERS; operation++) {
        await worker.operation();
        finished++;
      }
    });
    try {
      await Promise.all(work);
    } finally {
      isOver = true;
      await troubled;
      await Promise.allSettled(work);
    }
    for (const worker of workers) await worker.verify();

    expect(bench.restarts).toBeGreaterThan(0);
    client.close();
    await bench.close();
  },
);
