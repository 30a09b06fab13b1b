import { systemClock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { programBesideAddon } from '../../base/native.ts';
import type { Options } from '../../config/options.ts';
import type { MountParts } from '../mount-parts.ts';
import { AnnouncedCalls } from './announced-calls.ts';
import { Announcements } from './announcements.ts';
import { Announcer } from './announcer.ts';

/** The announcements of a mount; null where changes made elsewhere are not reported to watchers. */
export function watchersOf(
  { mounted: ops, store, tree, freshness, changes }: MountParts,
  { binding, noNotify, readOnly }: Pick<Options, 'binding' | 'noNotify' | 'readOnly'>,
  log: Logger,
): Announcements | null {
  if (binding !== 'linux' || noNotify || readOnly) return null;
  const program = programBesideAddon('cfs-announcer');
  if (program === null) return null;
  const owner = { uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 };
  const calls = new AnnouncedCalls({ ops, tree, clock: systemClock, owner });
  const announcements = new Announcements({
    begin: (onEnd) => new Announcer(program, onEnd),
    isInUse: (folder) => freshness.isInUse(folder),
    ...{ calls, store, tree, clock: systemClock, log: log.child({ part: 'announcer' }) },
  });
  changes.on('remote', (changed) => announcements.changed(changed));
  return announcements;
}
