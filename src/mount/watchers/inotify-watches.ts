import { createReadStream, readlinkSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Descriptors that are looked at in one turn of the event loop. */
const DESCRIPTORS_PER_TURN = 200;
/** A program with more watches in one mount is an indexer: no person looks at what it watches. */
const WATCHES_OF_WINDOW_MAX = 64;

/**
 * The inodes of a file system that programs watch by inotify(7), as far as this user may know it (proc(5), /proc/PID/fdinfo). It uses nothing
 * of the file system itself.
 *
 * @param device MAJOR:MINOR
 */
export async function inotifyWatches(device: string, proc = '/proc'): Promise<ReadonlySet<number>> {
  const [major = 0, minor = 0] = device.split(':').map(Number);
  // The kernel's own form of a device number (fs/notify/fdinfo.c, MKDEV).
  const superblock = ((major << 20) | minor).toString(16);
  const found = new Set<number>();
  let seen = 0;
  for (const pid of (await readdir(proc)).filter((name) => /^\d+$/.test(name))) {
    // Processes end meanwhile, and those of other users refuse.
    for (const descriptor of await readdir(join(proc, pid, 'fd')).catch(() => [])) {
      if (++seen % DESCRIPTORS_PER_TURN === 0) await nextTurn();
      if (!isInotify(join(proc, pid, 'fd', descriptor))) continue;
      for (const ino of await watchesIn(join(proc, pid, 'fdinfo', descriptor), superblock)) found.add(ino);
    }
  }
  return found;
}

function isInotify(descriptor: string): boolean {
  try {
    return readlinkSync(descriptor) === 'anon_inode:inotify';
  } catch {
    return false;
  }
}

/** The inodes of one inotify instance; none of an indexer. */
async function watchesIn(path: string, superblock: string): Promise<readonly number[]> {
  const inos: number[] = [];
  let rest = '';
  try {
    for await (const chunk of createReadStream(path, 'latin1')) {
      const lines = `${rest}${chunk}`.split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const [, ino, device] = /^inotify wd:\S+ ino:([0-9a-f]+) sdev:([0-9a-f]+) /.exec(line) ?? [];
        if (ino === undefined || device !== superblock) continue;
        inos.push(Number.parseInt(ino, 16));
        if (inos.length > WATCHES_OF_WINDOW_MAX) return [];
      }
    }
  } catch {
    return [];
  }
  return inos;
}
