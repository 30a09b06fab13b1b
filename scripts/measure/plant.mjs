// Writes a known tree directly into the store of a mount, in the state that listings would leave: clean, on the
// service too, with fresh listings. With `--dir-ttl 24h` the mount sends no request for it, so the service need not have it.
//   const { seconds } = plant(store, [['top', 2], ['file', 99]])     of a mount that has ended: top-0/file-0 to top-1/file-98
import { fileURLToPath } from 'node:url';
import { built } from '../built.mjs';
import { run } from './ground.mjs';

/** Files that are written at once. */
const AT_ONCE = 100;

/** @typedef {readonly (readonly [name: string, count: number])[]} Levels from the root; `count` in each folder above; the last are files */

/** @param {string} store @param {Levels} levels */
export function plant(store, levels) {
  return run(`${process.execPath} ${fileURLToPath(import.meta.url)} '${store}' '${JSON.stringify(levels)}'`);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  await write(process.argv[2], JSON.parse(String(process.argv[3])));

/** @param {string} directory @param {Levels} levels */
async function write(directory, levels) {
  /** @type {typeof import('../../src/store/environment.ts')} */
  const { Store } = await import(built('store/environment.js'));
  /** @type {typeof import('../../src/store/node-table.ts')} */
  const { newInode, writeNode } = await import(built('store/node-table.js'));
  /** @type {typeof import('../../src/base/clock.ts')} */
  const { systemClock } = await import(built('base/clock.js'));
  /** @type {typeof import('../../src/base/log.ts')} */
  const { silentLogger } = await import(built('base/log.js'));
  /** @type {typeof import('../../src/base/vocabulary.ts')} */
  const { ROOT_INODE, timespecOfMs } = await import(built('base/vocabulary.js'));
  const store = await Store.open({ directory, clock: systemClock, log: silentLogger });
  const nowMs = systemClock.nowMs();
  const now = timespecOfMs(nowMs);
  const { remote: there = null, local: here = null } = store.get('node', ROOT_INODE) ?? {};
  if (there === null || here === null) throw new Error('the store has no root');
  const { origin } = new URL(there.resource);
  /**
   * @param {import('../../src/store/tables.ts').Transaction} tx
   * @param {'file' | 'folder'} kind
   * @param {import('../../src/base/vocabulary.ts').Inode} parent
   * @param {string} name
   */
  const put = (tx, kind, parent, name) => {
    const ino = newInode(tx);
    const isFolder = kind === 'folder';
    const sizeBytes = isFolder ? 0 : 1000;
    const times = { atime: now, mtime: now, ctime: now };
    const local = { ...here, ...times, parent, name, mode: isFolder ? 0o755 : 0o644, sizeBytes };
    const resource = /** @type {import('../../src/base/vocabulary.ts').ResourceUrl} */ (
      `${origin}/${kind}/:sc:1:${1_000_000_000 + ino}`
    );
    const remote = {
      ...{ resource, parent, name, shownAs: name },
      sizeBytes: isFolder ? null : sizeBytes,
      modified: isFolder ? null : { ms: nowMs, certainty: /** @type {const} */ ('exact') },
      mediaType: isFolder ? null : 'application/octet-stream',
      ...{ content: null, createdHereMs: null },
    };
    writeNode(tx, undefined, { ino, kind, localOnly: false, local, remote }, nowMs);
    if (isFolder) tx.put('folder', ino, { listedMs: nowMs });
    return ino;
  };
  /** @param {import('../../src/base/vocabulary.ts').Inode} folder @param {Levels} left */
  const fill = async (folder, [top, ...below]) => {
    if (top === undefined) return;
    const [name, count] = top;
    if (below.length > 0) {
      for (let i = 0; i < count; i++) {
        const inner = store.transact((tx) => put(tx, 'folder', folder, `${name}-${i}`));
        await fill(inner, below);
      }
      return;
    }
    for (let i = 0; i < count; i += AT_ONCE) {
      store.transact((tx) => {
        for (let n = i; n < Math.min(count, i + AT_ONCE); n++) put(tx, 'file', folder, `${name}-${n}`);
      });
      if (store.pressure() > 0.5) await store.drain();
    }
  };
  store.transact((tx) => tx.put('folder', ROOT_INODE, { listedMs: nowMs }));
  await fill(ROOT_INODE, levels);
  await store.close();
}
