import { localTime } from '../../base/local-time.ts';
import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import type { EventRecord, WatchMessage } from '../../control/event-model.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { eventLine, eventPaths } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import { mountAndPath } from './sync.ts';

export interface LogFlags {
  /** A file or folder in the mount; null: all events. */
  readonly file: string | null;
  readonly account: string | null;
  readonly json: boolean;
  /** Aborted when no more is wanted; null: only the history. */
  readonly followUntil: AbortSignal | null;
}

/** `cfs log [--follow] [--json] [PATH]`: the event history of a mount, then new events. It ends with the mount. */
export async function logCommand(deps: CommandOutput & { readonly paths: Paths }, flags: LogFlags): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const show = (message: WatchMessage): void => {
    if (message.type !== 'event' || !isAbout(message, path)) return;
    deps.print(`${flags.json ? jsonLine(message) : textLine(message)}\n`);
  };
  const { followUntil } = flags;
  try {
    await callControl(
      mount.socketPath,
      'watch',
      { since: null, follow: followUntil !== null, status: false },
      { onProgress: show, ...(followUntil !== null && { signal: followUntil }) },
    );
  } catch (error) {
    if (!followUntil?.aborted) throw error;
  }
  return exitCode('ok');
}

/** Whether an event is about `path` or something in it. */
export function isAbout({ event }: EventRecord, path: string | null): boolean {
  if (path === null || path === '') return true;
  return eventPaths(event).some((each) => each === path || each.startsWith(`${path}/`));
}

/** `2026-11-25 14:02:11  uploaded report.odt (version 7, 12 KiB)`, in local time. */
export function textLine({ atMs, event }: EventRecord): string {
  return `${localTime(atMs)}  ${eventLine(event)}`;
}

function jsonLine({ seq, atMs, event }: EventRecord): string {
  return JSON.stringify({ seq, atMs, ...event });
}
