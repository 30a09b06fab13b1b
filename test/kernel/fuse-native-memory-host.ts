/**
 * Serves a MemoryFileSystem with the package fuse-native on this very thread, without the process that `--binding fuse-native` puts
 * between: the second binding at its best, for scripts/bench-kernel.mjs. Arguments: directory, how many empty files in a folder `many`.
 */
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { mountWithFuseNative } from '../../src/kernel/fuse-native/fuse-native.ts';
import { PathOperations } from '../../src/kernel/fuse-native/path-operations.ts';
import { mountOn } from '../../src/kernel/mount-table.ts';
import { OpBoundary } from '../../src/kernel/op-boundary.ts';
import { MemoryFileSystem } from './memory-file-system.ts';

const [directory = '', files = '0'] = process.argv.slice(2);
const fileSystem = new MemoryFileSystem();
const many = fileSystem.plantFolder(ROOT_INODE, 'many');
for (let i = 0; i < Number(files); i++) fileSystem.plant(many, `file-${i}`, new Uint8Array(0));
await mountWithFuseNative(
  { directory, fsname: 'bench', subtype: 'fuse-native', words: [] },
  new PathOperations({
    ops: fileSystem,
    boundary: new OpBoundary({ log: silentLogger, clock: systemClock, deadlineMs: 30_000 }),
    caller: { uid: 0, gid: 0 },
  }),
);
setInterval(() => {
  if (mountOn(directory) === null) process.exit(0); // the package tells nobody
}, 500);
