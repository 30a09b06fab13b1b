import { realpathSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import type { Paths } from '../config/paths.ts';
import { callControl } from '../control/client.ts';
import { exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';
import { mountPathOf } from './mount-point.ts';
import { ProgressLine } from './progress-line.ts';
import { accountStates, chooseMount, isRunning, noMount, type RunningMount } from './running-mounts.ts';

/** Where a command's words go. */
export interface CommandOutput {
  readonly print: (text: string) => void;
  readonly warn: (text: string) => void;
  /** A line that the next one replaces; null where standard error is not a terminal. */
  readonly redraw: ((text: string) => void) | null;
}

export interface SyncFlags {
  /** A file or folder in the mount; null: everything. */
  readonly file: string | null;
  readonly account: string | null;
  readonly wait: boolean;
  /** Stop waiting after this long; null: never. */
  readonly timeoutMs: number | null;
}

/**
 * `cfs sync [--wait] [FILE]`: pushes at once everything that was closed when it was called. With `--wait` it returns when each
 * of those changes is with the service (ok) or something is parked (parked); `--timeout` ends only the waiting (pending).
 */
export async function syncCommand(
  deps: CommandOutput & { paths: Paths; clock: Clock },
  flags: SyncFlags,
): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  if (flags.wait && mount.status.connection.state !== 'online')
    deps.warn(`the service is not reachable (${mount.status.connection.state}): waiting\n`);
  const line = new ProgressLine({ clock: deps.clock, output: deps });
  const late = new AbortController();
  // Not AbortSignal.timeout: it aborts at once when it is to wait for more than 24 days.
  const timeUp = () => late.abort(new DOMException('not in time', 'TimeoutError'));
  const cancel = flags.timeoutMs === null ? () => {} : deps.clock.after(flags.timeoutMs, timeUp);
  try {
    const outcome = await callControl(
      mount.socketPath,
      'sync',
      { path, wait: flags.wait },
      { signal: late.signal, onProgress: (progress) => line.show(progress) },
    );
    line.end();
    if (!flags.wait) {
      deps.print('pushing\n');
      return exitCode('ok');
    }
    for (const change of outcome.parked) deps.warn(`parked: ${visible(change.path)}: ${change.reason}\n`);
    deps.print(
      outcome.pushed === 0 && outcome.parked.length === 0
        ? 'everything is with the service\n'
        : `pushed ${outcome.pushed}, parked ${outcome.parked.length}\n`,
    );
    return outcome.parked.length > 0 ? exitCode('parked') : exitCode('ok');
  } catch (error) {
    line.end();
    if (!(error instanceof Error && error.name === 'TimeoutError')) throw error;
    throw new UsageError('not everything was pushed in time; what is left stays queued and safe', exitCode('pending'));
  } finally {
    cancel();
  }
}

/** The mount that holds `file`, and the file's path below its root. */
export async function mountAndPath(
  paths: Paths,
  flags: { readonly file: string | null; readonly account: string | null },
): Promise<{ mount: RunningMount; path: string | null }> {
  if (flags.file === null) {
    return { mount: await chooseMount(paths, { directory: null, account: flags.account }), path: null };
  }
  const wanted = realPathOf(flags.file);
  const states = await accountStates(paths);
  const mount = states.filter(isRunning).find(({ status }) => isWithin(wanted, status.directory));
  if (mount === undefined) throw noMount(states, `${visible(flags.file)} lies in no mount that is running`);
  const path = relative(mount.status.directory, wanted);
  return { mount, path: path === '' ? null : path };
}

function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}

/** Links in the folders above are followed, the file itself is taken as named: it may be a link that is to be pushed. */
function realPathOf(file: string): string {
  const absolute = resolve(file);
  try {
    return join(realpathSync(dirname(absolute)), basename(absolute));
  } catch {
    return mountPathOf(absolute);
  }
}
