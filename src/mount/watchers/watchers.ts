import { systemClock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { programBesideAddon } from '../../base/native.ts';
import type { Inode } from '../../base/vocabulary.ts';
import type { Options } from '../../config/options.ts';
import { soundNode } from '../../store/node-table.ts';
import type { MountParts } from '../mount-parts.ts';
import { AnnouncedCalls } from './announced-calls.ts';
import { Announcements } from './announcements.ts';
import { Announcer } from './announcer.ts';
import { inotifyWatches } from './inotify-watches.ts';

/** The announcements of a mount; null where changes made elsewhere are not reported to watchers. */
export function watchersOf(
  parts: MountParts,
  { binding, noNotify, readOnly }: Pick<Options, 'binding' | 'noNotify' | 'readOnly'>,
  log: Logger,
): Announcements | null {
  if (binding !== 'linux' || noNotify || readOnly) return null;
  const program = programBesideAddon('cfs-announcer');
  if (program === null) return null;
  const { mounted: ops, store, tree, freshness, changes } = parts;
  const owner = { uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 };
  const calls = new AnnouncedCalls({ ops, tree, clock: systemClock, owner });
  const announcements = new Announcements({
    begin: (onEnd) => new Announcer(program, onEnd),
    isInUse: (folder) => freshness.isInUse(folder),
    onStart: ({ device }) => freshness.followWatched(() => watchedFolders(parts, device)),
    ...{ calls, store, tree, clock: systemClock, log: log.child({ part: 'announcer' }) },
  });
  changes.on('remote', (changed) => announcements.changed(changed));
  changes.on('readable', (inos) => announcements.readable(inos));
  return announcements;
}

/** The folders that programs watch, or have open, and those of the files that programs watch. */
async function watchedFolders(
  { store, tree, fileSystem }: Pick<MountParts, 'store' | 'tree' | 'fileSystem'>,
  device: string,
): Promise<ReadonlySet<Inode>> {
  const folders = new Set<Inode>();
  for (const ino of [...(await inotifyWatches(device)), ...fileSystem.openFolders]) {
    const node = soundNode(store, ino as Inode);
    const folder = node?.kind === 'folder' ? node.ino : node?.local?.parent;
    if (folder !== undefined && tree.isComplete(folder)) folders.add(folder);
  }
  return folders;
}
