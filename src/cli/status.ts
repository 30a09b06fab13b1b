import type { Clock } from '../base/clock.ts';
import type { Paths } from '../config/paths.ts';
import { formatBytes, formatDuration } from '../config/units.ts';
import type { Status } from '../control/status-model.ts';
import { exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';
import { pinText } from './pin.ts';
import { type AccountState, accountStates } from './running-mounts.ts';

/** How many pending changes a person is shown; scripts read all that `--json` has. */
const SHOWN_MAX = 10;

/** `cfs status`: every account, one after another. Exit code: parked where something is parked, otherwise ok. */
export async function statusCommand(
  deps: { paths: Paths; clock: Clock; print: (text: string) => void },
  flags: { json: boolean },
): Promise<number> {
  const states = await accountStates(deps.paths);
  if (flags.json) deps.print(`${JSON.stringify({ accounts: states }, null, 2)}\n`);
  else if (states.length === 0) deps.print('not signed in: run cfs login URL\n');
  else deps.print(`${states.map((state) => statusText(state, deps.clock.nowMs())).join('\n\n')}\n`);
  return states.some(({ status }) => (status?.parked.length ?? 0) > 0) ? exitCode('parked') : exitCode('ok');
}

/** One account as a few lines. */
export function statusText(state: AccountState, nowMs: number): string {
  const who = `${visible(state.username)} at ${state.origin}`;
  if (state.silent) return `${who}\n  mounted, but the process does not answer: see ${state.name}/mount.log`;
  if (state.status === null) return `${who}\n  not mounted`;
  const { status } = state;
  return [
    who,
    `  mounted    ${visible(status.directory)} (process ${status.pid})`,
    ...details(status, nowMs).map((line) => `  ${line}`),
  ].join('\n');
}

function details(status: Status, nowMs: number): string[] {
  const { pending, parked, transfers, cache } = status;
  const lines = [`service    ${connectionText(status, nowMs)}`];
  if (status.phase === 'draining') lines.push('unmounting now');
  lines.push(
    pending.count === 0
      ? 'pending    nothing: the service has everything'
      : `pending    ${pending.count} (${formatBytes(pending.bytes)}), kept on this machine`,
  );
  for (const change of pending.changes.slice(0, SHOWN_MAX)) {
    const retries = change.attempts > 0 ? `, attempt ${change.attempts + 1}` : '';
    lines.push(`           ${change.kind} ${visible(change.path)}${retries}`);
  }
  if (pending.count > SHOWN_MAX) lines.push(`           and ${pending.count - SHOWN_MAX} more`);
  for (const change of parked)
    lines.push(
      `parked     ${change.kind} ${visible(change.path)}: ${change.reason} (for ${formatDuration(nowMs - change.sinceMs)})`,
    );
  for (const pinned of status.pinned) {
    const name = pinned.path === '' ? 'everything' : visible(pinned.path);
    const size = `${pinned.files} files, ${formatBytes(pinned.bytes)}`;
    lines.push(`pinned     ${name}: ${pinned.isComplete ? `here, ${size}` : pinText(pinned)}`);
  }
  for (const transfer of transfers) {
    const percent = transfer.totalBytes === 0 ? 100 : Math.floor((100 * transfer.doneBytes) / transfer.totalBytes);
    const arrow = transfer.direction === 'up' ? 'uploading ' : 'fetching  ';
    lines.push(
      `${arrow} ${visible(transfer.path)} ${percent} % of ${formatBytes(transfer.totalBytes)}, ${formatBytes(transfer.bytesPerSecond)}/s`,
    );
  }
  lines.push(`cache      ${formatBytes(cache.usedBytes)} of ${formatBytes(cache.limitBytes)}`);
  return lines;
}

function connectionText({ connection }: Status, nowMs: number): string {
  const since = `for ${formatDuration(Math.max(0, nowMs - connection.sinceMs))}`;
  switch (connection.state) {
    case 'online':
      return `online ${since}`;
    case 'offline':
      return `offline ${since}${connection.reason === null ? '' : `: ${connection.reason}`}`;
    case 'sign-in-needed':
      return `refuses the saved sign-in ${since}: run cfs login URL`;
    default:
      return connection.state satisfies never;
  }
}
