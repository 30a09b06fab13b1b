// `node scripts/measure/fuse-native-memory.mjs DIRECTORY FILES`: the package fuse-native at its best, for scripts/bench-kernel.mjs. A file
// system in memory whose operations are a look-up in a map, on the main thread, with the names of FILES files made beforehand.
import { createRequire } from 'node:module';

const Fuse = createRequire(import.meta.url)('fuse-native');
const [directory, files] = process.argv.slice(2);
const time = new Date();
let inode = 1;
const node = (/** @type {number} */ mode) => ({
  ...{ mode, uid: 0, gid: 0, size: 0, nlink: 1, ino: inode++, blocks: 0, blksize: 4096 },
  ...{ atime: time, mtime: time, ctime: time },
});
/** @type {Map<string, ReturnType<typeof node>>} */
const nodes = new Map([['/', node(0o40755)]]);
const contents = new Map();
const folders = new Map([['/', new Set(['many'])]]);
/** @param {string} path */
const folderAt = (path) => /** @type {Set<string>} */ (folders.get(path));
/** @param {string} path */
const nodeAt = (path) => /** @type {ReturnType<typeof node>} */ (nodes.get(path));
nodes.set('/many', node(0o40755));
folders.set('/many', new Set(Array.from({ length: Number(files) }, (_, i) => `file-${i}`)));
for (const name of folderAt('/many')) nodes.set(`/many/${name}`, node(0o100644));
const place = (/** @type {string} */ path) => {
  const at = path.lastIndexOf('/');
  return [at === 0 ? '/' : path.slice(0, at), path.slice(at + 1)];
};

const operations = {
  /**
   * @param {string} path
   * @param {(errno: number, stat?: object) => void} done
   */
  getattr(path, done) {
    const found = nodes.get(path);
    if (found === undefined) done(Fuse.ENOENT);
    else done(0, found);
  },
  /**
   * @param {string} path
   * @param {(arg0: number, arg1: string[]) => void} done
   */
  readdir(path, done) {
    done(0, ['.', '..', ...folderAt(path)]);
  },
  /**
   * @param {string} _path
   * @param {number} _flags
   * @param {(arg0: number, arg1: number) => void} done
   */
  open(_path, _flags, done) {
    done(0, 1);
  },
  /**
   * @param {string} path
   * @param {number} mode
   * @param {(arg0: number, arg1: number) => void} done
   */
  create(path, mode, done) {
    nodes.set(path, node(mode));
    const [folder, name] = place(path);
    folderAt(folder).add(name);
    done(0, 1);
  },
  /**
   * @param {string} path
   * @param {number} _fd
   * @param {Buffer} buffer
   * @param {number} length
   * @param {number} offset
   * @param {(count: number) => void} done
   */
  read(path, _fd, buffer, length, offset, done) {
    const bytes = contents.get(path)?.subarray(offset, offset + length) ?? new Uint8Array(0);
    buffer.set(bytes);
    done(bytes.length);
  },
  /**
   * @param {string} path
   * @param {number} _fd
   * @param {Buffer} buffer
   * @param {number} length
   * @param {number} offset
   * @param {(count: number) => void} done
   */
  write(path, _fd, buffer, length, offset, done) {
    const found = nodeAt(path);
    let bytes = contents.get(path) ?? Buffer.alloc(0);
    if (offset + length > bytes.length) {
      const longer = Buffer.alloc(Math.max(offset + length, bytes.length * 2));
      bytes.copy(longer);
      bytes = longer;
      contents.set(path, bytes);
    }
    buffer.copy(bytes, offset, 0, length);
    found.size = Math.max(found.size, offset + length);
    done(length);
  },
  /**
   * @param {string} path
   * @param {number} size
   * @param {(arg0: number) => void} done
   */
  truncate(path, size, done) {
    nodeAt(path).size = size;
    done(0);
  },
  /**
   * @param {string} _path
   * @param {number} _fd
   * @param {(arg0: number) => void} done
   */
  release(_path, _fd, done) {
    done(0);
  },
  /**
   * @param {string} path
   * @param {(arg0: number) => void} done
   */
  unlink(path, done) {
    const [folder, name] = place(path);
    folderAt(folder).delete(name);
    nodes.delete(path);
    contents.delete(path);
    done(0);
  },
};
// big_writes behind a comma: the package has no option for it.
const fuse = new Fuse(directory, operations, { timeout: false, fsname: 'bench,big_writes' });
fuse.mount((/** @type {Error | null} */ error) => {
  if (error) throw error;
});
// Ends the process after the unmount, which the package does not report.
const { readFileSync } = await import('node:fs');
let wasMounted = false;
setInterval(() => {
  const mounted = readFileSync('/proc/self/mounts', 'utf8').includes(` ${directory} `);
  if (wasMounted && !mounted) process.exit(0);
  wasMounted = mounted;
}, 500);
