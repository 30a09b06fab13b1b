import { formatBytes, formatDuration } from '../config/units.ts';
import { type ConnectionStatus, HELD_NODES_MAX, type HeldRemoval } from '../control/status-model.ts';

/** What a person in front of a mount wants to know: each is printed as one line. Paths are relative to the mount's root. */
export type MountEvent =
  | {
      readonly type: 'mounted';
      readonly directory: string;
      readonly account: string;
      readonly pending: number;
      readonly connection: ConnectionStatus;
    }
  | { readonly type: 'uploaded'; readonly path: string; readonly version: number | null; readonly sizeBytes: number }
  | { readonly type: 'fetched'; readonly path: string; readonly sizeBytes: number }
  | { readonly type: 'folder-created'; readonly path: string }
  | { readonly type: 'renamed'; readonly from: string; readonly to: string }
  | { readonly type: 'deleted'; readonly path: string; readonly to: 'trash' | 'forever' }
  | { readonly type: 'conflict'; readonly path: string; readonly copy: string }
  | { readonly type: 'parked'; readonly path: string; readonly reason: string }
  | { readonly type: 'taken-back'; readonly path: string; readonly copy: string | null }
  | { readonly type: 'held-back'; readonly path: string; readonly nodes: number }
  | { readonly type: 'offline'; readonly reason: string }
  | { readonly type: 'online'; readonly offlineMs: number }
  | { readonly type: 'sign-in-needed' }
  | { readonly type: 'unmounting'; readonly pending: number }
  | { readonly type: 'unmounted'; readonly directory: string; readonly pending: number; readonly busy: boolean };

/** One sentence without a full stop, in 80 columns where the names allow it. Control characters in names are made visible. */
export function eventLine(event: MountEvent): string {
  switch (event.type) {
    case 'mounted': {
      const { pending, connection } = event;
      const what = connection.state === 'online' ? `${verb(pending)} pushed now` : pending === 1 ? 'waits' : 'wait';
      const queued = pending > 0 ? `; ${changes(pending)} from before ${what}` : '';
      return `mounted ${visible(event.account)} at ${visible(event.directory)}${connectionNote(connection)}${queued}`;
    }
    case 'uploaded': {
      const version = event.version === null ? '' : `version ${event.version}, `;
      return `uploaded ${visible(event.path)} (${version}${formatBytes(event.sizeBytes)})`;
    }
    case 'fetched':
      return `fetched ${visible(event.path)} (${formatBytes(event.sizeBytes)})`;
    case 'folder-created':
      return `created folder ${visible(event.path)}`;
    case 'renamed':
      return `renamed ${visible(event.from)} to ${visible(event.to)}`;
    case 'deleted':
      return event.to === 'trash'
        ? `moved ${visible(event.path)} to the trash`
        : `deleted ${visible(event.path)} permanently`;
    case 'conflict':
      return `${visible(event.path)} was changed or created both here and elsewhere: both are kept, one as ${visible(event.copy)}`;
    case 'parked':
      return `parked ${visible(event.path)}: ${visible(event.reason)} (kept on this machine; see cfs status)`;
    case 'taken-back': {
      const kept = event.copy === null ? 'not all of it was here' : `it is kept as ${visible(event.copy)}`;
      return `the service has lost the newest version of ${visible(event.path)}: ${kept}`;
    }
    case 'held-back':
      return `held back: ${heldText(event)}`;
    case 'offline':
      return `offline: ${visible(event.reason)}; files on this machine stay usable, changes are kept and pushed later`;
    case 'online':
      return `online again after ${formatDuration(event.offlineMs)}`;
    case 'sign-in-needed':
      return 'the service refuses the saved sign-in: run cfs login; changes are kept until then';
    case 'unmounting':
      return event.pending > 0 ? `unmounting, pushing ${changes(event.pending)} first` : 'unmounting';
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

/** What a person should know of the connection when a mount begins: `''` while it is online, otherwise ` (…)`. */
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

/** What is kept here though the service does not list it, and what to do: `12 removals in photos: …`. */
export function heldText({ path, nodes }: HeldRemoval): string {
  const count = nodes >= HELD_NODES_MAX ? 'more than 100 removals' : `${nodes} ${nodes === 1 ? 'removal' : 'removals'}`;
  const place = path === '' ? 'the top folder' : visible(path);
  return `${count} in ${place}, kept here: check the service, then run cfs refresh --accept`;
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
