import type { Clock } from '../../base/clock.ts';
import { localTime } from '../../base/local-time.ts';
import { programVersion } from '../../base/program-version.ts';
import { accountPaths, type Paths, storeDirectories } from '../../config/paths.ts';
import { formatBytes, formatDuration } from '../../config/units.ts';
import type { Status } from '../../control/status-model.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { heldText, visible } from '../../mount/mount-event.ts';
import { haveSameLayouts, LAYOUTS } from '../../mount/mount-request.ts';
import { QUOTA_LOW_SHARE } from '../../mount/quota-watch.ts';
import { type AccountState, accountStates } from '../../mount/running-mounts.ts';
import { ownerOf } from '../../store/owner-lock.ts';
import type { UnmountedStore } from '../../store/unmounted-index.ts';
import { unmountedStore } from '../../store/unmounted-store.ts';
import { pinText } from './pin-text.ts';
import { watch } from './status-watch.ts';

/** How many pending changes the text lists; `--json` has all of them. */
const SHOWN_MAX = 10;

/** The process of a mount that does not answer. */
export interface SilentProcess {
  readonly pid: number | null;
  readonly logFile: string;
}

/** The store of a root that is not mounted: no mount reports its numbers, or pushes its changes. */
export interface WaitingBelow extends UnmountedStore {
  readonly root: 'briefcase' | 'account';
}

interface ShownAccount extends AccountState {
  readonly waiting: readonly WaitingBelow[];
}

/** `cfs status`: every account, one after another. Exit code: parked if a change is parked, otherwise ok. */
export async function statusCommand(
  deps: { readonly paths: Paths; readonly clock: Clock; readonly print: (text: string) => void },
  flags: {
    readonly json: boolean;
    /** Shown repeatedly until this signal; null: once. */
    readonly watchUntil?: AbortSignal | null;
    readonly isTerminal?: boolean;
  },
): Promise<number> {
  const shownAccounts = async (): Promise<readonly ShownAccount[]> =>
    Promise.all(
      (await accountStates(deps.paths)).map(async (state) => ({
        ...state,
        waiting: await waitingOf(deps.paths, state),
      })),
    );
  let states = await shownAccounts();
  const shownAccount = (state: ShownAccount): string =>
    statusText(state, deps.clock.nowMs(), state.waiting, silentProcess(deps.paths, state));
  const shown = (): string => {
    // With `--watch`, one line per refresh, for programs that read a stream.
    if (flags.json) return `${JSON.stringify({ accounts: states }, null, flags.watchUntil == null ? 2 : 0)}\n`;
    if (states.length === 0) return 'not signed in: run cfs login URL\n';
    return `${states.map(shownAccount).join('\n\n')}\n`;
  };
  if (flags.watchUntil == null) deps.print(shown());
  else {
    const look = async (): Promise<string> => {
      states = await shownAccounts();
      return shown();
    };
    await watch({ ...deps, isTerminal: flags.isTerminal === true && !flags.json }, look, flags.watchUntil);
  }
  return states.some(({ status }) => (status?.parked.length ?? 0) > 0) ? exitCode('parked') : exitCode('ok');
}

async function waitingOf(paths: Paths, { name }: AccountState): Promise<readonly WaitingBelow[]> {
  const [usual, ofAccount] = storeDirectories(accountPaths(paths, name));
  const below = [
    { root: 'briefcase' as const, ...(await unmountedStore(usual)) },
    { root: 'account' as const, ...(await unmountedStore(ofAccount)) },
  ];
  return below.filter(({ changes, local }) => changes > 0 || local > 0);
}

/** The process of a silent mount, found without asking it: the owner of its store, and its log. */
function silentProcess(paths: Paths, { name, silent }: AccountState): SilentProcess | null {
  if (!silent) return null;
  const account = accountPaths(paths, name);
  for (const directory of storeDirectories(account)) {
    try {
      const pid = ownerOf(directory);
      if (pid !== null) return { pid, logFile: account.logFile };
    } catch {
      // Without access to the directory only the log is shown.
    }
  }
  return { pid: null, logFile: account.logFile };
}

/** One account as lines of at most 80 columns; a longer word, such as a path, makes a longer line. */
export function statusText(
  state: AccountState,
  nowMs: number,
  waiting: readonly WaitingBelow[] = [],
  silent: SilentProcess | null = null,
): string {
  const who = `${visible(state.username)} at ${state.origin}`;
  if (state.silent) {
    const process = silent === null || silent.pid === null ? 'process' : `process (${silent.pid})`;
    const log = silent === null ? '' : `; its log is ${visible(silent.logFile)}`;
    return [who, ...folded(`  mounted, but the ${process} does not answer: run cfs doctor${log}`)].join('\n');
  }
  const below = waiting.flatMap(({ root, changes, local }) => {
    const what = `${changes} ${changes === 1 ? 'change' : 'changes'} below --root ${root}`;
    const pushes = `waiting    ${what}, which ${state.status === null ? 'the next mount pushes' : 'is not mounted'}`;
    const stays = `local      ${local} below --root ${root} only on this machine because of their names`;
    return [...(changes > 0 ? [pushes] : []), ...(local > 0 ? [stays] : [])];
  });
  if (state.status === null) return [who, '  not mounted', ...below.flatMap((line) => folded(`  ${line}`))].join('\n');
  const { status } = state;
  return [
    who,
    `  mounted    ${visible(status.directory)} (process ${status.pid})`,
    ...[...otherVersion(status), ...details(status, nowMs), ...below].flatMap((line) => folded(`  ${line}`)),
  ].join('\n');
}

/** An upgrade does not restart running mounts. */
function otherVersion({ version = 'an earlier version', directory, continuity, storeLayout = 0 }: Status): string[] {
  const installed = programVersion();
  if (version === installed) return [];
  const running = continuity === undefined ? null : { store: storeLayout, handover: continuity.layout };
  const canContinue = running !== null && haveSameLayouts(running, LAYOUTS);
  const how = canContinue ? `run cfs-mount ${visible(directory)}` : 'unmount and mount again';
  return [`version    ${version} still runs; to use ${installed}, ${how}`];
}

const COLUMNS = 80;
/** The column after a line's first word. */
const INDENT = 13;

/** A line in pieces of 80 columns, broken between words: a path is never cut, so that it can be copied. */
function folded(line: string): string[] {
  const lines: string[] = [];
  let current = line.slice(0, INDENT);
  for (const word of line.slice(INDENT).split(/(?<= )/)) {
    if (current.length > INDENT && current.length + word.trimEnd().length > COLUMNS) {
      lines.push(current.trimEnd());
      current = ' '.repeat(INDENT);
    }
    current += word;
  }
  return [...lines, current.trimEnd()];
}

function restartsOf({ deaths, upgrades, lastPauseMs }: NonNullable<Status['continuity']>): string[] {
  if (lastPauseMs === null) return [];
  const times = (count: number): string => `${count} ${count === 1 ? 'time' : 'times'}`;
  const lines = [
    ...(deaths > 0 ? [`restarted  ${times(deaths)} after the death of the mount process`] : []),
    ...(upgrades > 0 ? [`upgraded   ${times(upgrades)} while mounted`] : []),
  ];
  return lines.map((line, at) =>
    at < lines.length - 1 ? line : `${line}; the last pause took ${formatDuration(lastPauseMs)}`,
  );
}

function details(status: Status, nowMs: number): string[] {
  const { pending, parked, transfers, cache, local } = status;
  const isEverything = parked.length === 0 && (local?.count ?? 0) === 0;
  const lines = [`service    ${connectionText(status, nowMs)}`];
  if (status.paused != null) {
    const until = status.paused.untilMs === null ? '' : ` until ${localTime(status.paused.untilMs)}`;
    lines.push(`paused     nothing is pushed${until}: cfs resume ends the pause`);
  }
  if (status.phase === 'draining') lines.push('unmounting now');
  if (status.continuity !== undefined) lines.push(...restartsOf(status.continuity));
  lines.push(
    pending.count === 0
      ? `pending    nothing${isEverything ? ': the service has everything' : ''}`
      : `pending    ${pending.count} (${formatBytes(pending.bytes)}), kept on this machine`,
  );
  for (const change of pending.changes.slice(0, SHOWN_MAX)) {
    const retries = change.attempts > 0 ? `, attempt ${change.attempts + 1}` : '';
    lines.push(`           ${change.kind} ${visible(change.path)}${retries}`);
  }
  if (pending.count > SHOWN_MAX) lines.push(`           and ${pending.count - SHOWN_MAX} more`);
  for (const [index, change] of parked.entries())
    lines.push(
      `parked     ${index === 0 ? 'needs you (cfs retry, cfs discard): ' : ''}${change.kind} ${visible(change.path)}: ${visible(change.reason)} (for ${formatDuration(nowMs - change.sinceMs)})`,
    );
  for (const folder of status.localFolders)
    lines.push(`local      ${visible(folder)}: removed on the service; files in it exist only on this machine`);
  for (const held of status.held) lines.push(`held back  ${heldText(held)}`);
  if (local !== undefined && local.count > 0) {
    const shown = local.paths.slice(0, SHOWN_MAX).map(visible);
    const more = local.count > shown.length ? ` and ${local.count - shown.length} more` : '';
    lines.push(
      `local      ${local.count} (${formatBytes(local.bytes)}) only on this machine because of their names: ${shown.join(', ')}${more}`,
    );
  }
  for (const pinned of status.pinned) {
    const name = pinned.path === '' ? 'everything' : visible(pinned.path);
    const size = `${pinned.files} files, ${formatBytes(pinned.bytes)}`;
    lines.push(`pinned     ${name}: ${pinned.isComplete ? `here, ${size}` : pinText(pinned)}`);
  }
  for (const transfer of transfers) {
    const percent = transfer.totalBytes === 0 ? 100 : Math.floor((100 * transfer.doneBytes) / transfer.totalBytes);
    const arrow = transfer.direction === 'up' ? 'uploading ' : 'fetching  ';
    const left = transfer.leftMs === null ? '' : `, ${formatDuration(transfer.leftMs)} left`;
    const rate = `${formatBytes(Math.round(transfer.bytesPerSecond))}/s`;
    lines.push(
      `${arrow} ${visible(transfer.path)} ${percent} % of ${formatBytes(transfer.totalBytes)}, ${rate}${left}`,
    );
  }
  lines.push(`cache      ${formatBytes(cache.usedBytes)} of ${formatBytes(cache.limitBytes)}`);
  if (status.quota !== null) {
    const { usedBytes, limitBytes } = status.quota;
    const isLow = limitBytes > 0 && usedBytes >= QUOTA_LOW_SHARE * limitBytes;
    const warning = isLow ? ': nearly full, uploads are refused when it is full' : '';
    lines.push(`storage    ${formatBytes(usedBytes)} of ${formatBytes(limitBytes)} with the service${warning}`);
  }
  return lines;
}

function connectionText({ connection }: Status, nowMs: number): string {
  const since = `for ${formatDuration(Math.max(0, nowMs - connection.sinceMs))}`;
  switch (connection.state) {
    case 'connecting':
      return `connecting ${since}`;
    case 'online':
      return `online ${since}`;
    case 'offline':
      return `offline ${since}${connection.reason === null ? '' : `: ${connection.reason}`}`;
    case 'sign-in-needed':
      return `sign in again: run cfs login URL (the service has refused the saved sign-in ${since})`;
    default:
      return connection.state satisfies never;
  }
}
