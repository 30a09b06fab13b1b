import { localTime } from '../base/local-time.ts';
import { formatBytes, formatDuration } from '../config/units.ts';
import type { MountEvent } from '../control/event-model.ts';
import { type ConnectionStatus, HELD_NODES_MAX, type HeldRemoval } from '../control/status-model.ts';

/** One sentence without a full stop, in 80 columns where the names allow it. Control characters in names are made visible. */
export function eventLine(event: MountEvent): string {
  switch (event.type) {
    case 'mounted': {
      const { pending, connection, isPaused = false } = event;
      const waits = isPaused ? `${verb(pending)} kept: pushing is paused` : pending === 1 ? 'waits' : 'wait';
      const what = connection.state === 'online' && !isPaused ? `${verb(pending)} pushed now` : waits;
      const queued = pending > 0 ? `; ${changes(pending)} from an earlier mount ${what}` : '';
      return `mounted ${visible(event.account)} at ${visible(event.directory)}${connectionNote(connection)}${queued}`;
    }
    case 'uploaded': {
      const version = event.version === null ? '' : `version ${event.version}, `;
      return `uploaded ${visible(event.path)} (${version}${formatBytes(event.sizeBytes)})`;
    }
    case 'folder-created':
      return `created folder ${visible(event.path)}`;
    case 'renamed':
      return `renamed ${visible(event.from)} to ${visible(event.to)}`;
    case 'deleted':
      return event.to === 'trash'
        ? `moved ${visible(event.path)} to the trash`
        : `deleted ${visible(event.path)} permanently`;
    case 'received':
      return event.count === 1
        ? `${visible(event.path)} was ${event.change} elsewhere`
        : `${event.count} entries of ${shownFolder(event.path)} were ${event.change} elsewhere`;
    case 'renamed-elsewhere':
      return `${visible(event.from)} was renamed to ${visible(event.to)} elsewhere`;
    case 'conflict':
      return `${visible(event.path)} was changed or created both here and elsewhere: both are kept, one as ${visible(event.copy)}`;
    case 'parked':
      return `parked ${visible(event.path)}: ${visible(event.reason)} (kept on this machine; see cfs status)`;
    case 'taken-back': {
      const kept = event.copy === null ? 'the local copy is incomplete' : `it is kept as ${visible(event.copy)}`;
      return `the service has lost the newest version of ${visible(event.path)}: ${kept}`;
    }
    case 'held-back':
      return `held back: ${heldText(event)}`;
    case 'pinned':
      return `pinned ${shownFolder(event.path)}`;
    case 'unpinned':
      return `unpinned ${shownFolder(event.path)}`;
    case 'pin-complete': {
      const files = event.files === 1 ? '1 file' : `${event.files} files`;
      return `pinned ${shownFolder(event.path)} is complete here (${files}, ${formatBytes(event.bytes)})`;
    }
    case 'pin-stuck':
      return `pinned ${shownFolder(event.path)} is not complete: ${visible(event.reason)}; it is retried automatically`;
    case 'evicted': {
      const files = event.files === 1 ? '1 file' : `${event.files} files`;
      return `removed ${formatBytes(event.bytes)} of cached copies of ${files}: ${EVICTION_REASONS[event.reason]}`;
    }
    case 'paused': {
      const until = event.untilMs === null ? '' : ` until ${localTime(event.untilMs)}`;
      return `pushing is paused${until}; changes are kept on this machine`;
    }
    case 'limited':
      return `limited: up ${shownRate(event.up)}, down ${shownRate(event.down)}`;
    case 'quota-low': {
      const { usedBytes, limitBytes } = event;
      const left = formatBytes(Math.max(0, limitBytes - usedBytes));
      return `the storage of the account is nearly full: ${left} of ${formatBytes(limitBytes)} left; uploads are refused when it is full`;
    }
    case 'resumed':
      return 'pushing is resumed';
    case 'offline':
      return `offline: ${visible(event.reason)}; files on this machine stay usable, changes are kept and pushed later`;
    case 'online':
      return `online again after ${formatDuration(event.offlineMs)}`;
    case 'sign-in-needed':
      return 'the service refuses the saved sign-in: run cfs login; changes are kept until then';
    case 'unmounted': {
      const left =
        event.pending > 0
          ? `; ${changes(event.pending)} ${verb(event.pending)} kept here and pushed after the next mount`
          : '';
      const busy = event.busy ? ' (it was busy: programs that still use it get errors)' : '';
      return `unmounted ${visible(event.directory)}${busy}${left}`;
    }
    default:
      return event satisfies never;
  }
}

/** The state of the connection at the start of a mount: `''` while it is online, otherwise ` (…)`. */
export function connectionNote({ state, reason }: ConnectionStatus): string {
  switch (state) {
    case 'online':
      return '';
    case 'connecting':
      return ' (the service has not answered yet)';
    case 'offline':
      return ` (offline${reason === null ? '' : `: ${visible(reason)}`})`;
    case 'sign-in-needed':
      return ' (sign in again: run cfs login URL)';
    default:
      return state satisfies never;
  }
}

/**
 * Removals that the service reported and that are not carried out here until a person confirms them with `cfs refresh --accept`:
 * `12 removals in photos, kept here: …`.
 */
export function heldText({ path, nodes }: HeldRemoval): string {
  const count = nodes >= HELD_NODES_MAX ? 'more than 100 removals' : `${nodes} ${nodes === 1 ? 'removal' : 'removals'}`;
  return `${count} in ${shownFolder(path)}, kept here: check the service, then run cfs refresh --accept`;
}

/** `2 MiB/s`, or `no limit`. */
export function shownRate(bytesPerSecond: number | null): string {
  return bytesPerSecond === null ? 'no limit' : `${formatBytes(bytesPerSecond)}/s`;
}

const EVICTION_REASONS = {
  'cache-size': 'the cache reached --cache-size',
  'cache-reserve': 'the disk has less room than --cache-reserve',
  asked: 'cfs evict',
} as const;

/** The paths that an event is about; empty if it is about the mount as a whole. */
export function eventPaths(event: MountEvent): readonly string[] {
  const paths: string[] = [];
  if ('path' in event) paths.push(event.path);
  if ('from' in event) paths.push(event.from, event.to);
  if ('copy' in event && event.copy !== null) paths.push(event.copy);
  return paths;
}

function shownFolder(path: string): string {
  return path === '' ? 'the top folder' : visible(path);
}

function changes(count: number): string {
  return count === 1 ? '1 change' : `${count} changes`;
}

function verb(count: number): string {
  return count === 1 ? 'is' : 'are';
}

/** A name, or what a service says of a refusal, may hold a newline or an escape sequence; a terminal must get neither. */
export function visible(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`);
}
