import { relative } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import type { ControlMethods } from '../../control/methods.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { mountPathOf, namedPathOf } from '../../mount/mount-point.ts';
import { accountStates, chooseMount, isRunning, noMount, type RunningMount } from '../../mount/running-mounts.ts';
import type { CommandOutput } from '../command-output.ts';
import { ProgressLine } from './progress-line.ts';

export interface SyncFlags {
  /** A file or folder in the mount; null: everything. */
  readonly file: string | null;
  readonly account: string | null;
  readonly wait: boolean;
  /** Stop waiting after this long; null: never. */
  readonly timeoutMs: number | null;
}

/**
 * `cfs sync [--wait] [FILE]`: pushes all closed files immediately. With `--wait` it returns when each
 * of those changes is acknowledged (ok) or one is parked (parked); `--timeout` ends only the wait (pending). It does not wait for
 * files that are open for writing again, because a program may keep them open for days. The output has their number.
 */
export async function syncCommand(
  deps: CommandOutput & { paths: Paths; clock: Clock },
  flags: SyncFlags,
): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const line = new ProgressLine({
    clock: deps.clock,
    output: deps,
    hint: 'Ctrl-C stops waiting: the rest stays queued and safe',
  });
  const late = new AbortController();
  // Not AbortSignal.timeout, which aborts immediately for more than 24 days.
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
    for (const change of outcome.parked) deps.warn(`parked: ${visible(change.path)}: ${visible(change.reason)}\n`);
    for (const line of outcomeLines(outcome)) deps.print(`${line}\n`);
    return outcome.parked.length > 0 ? exitCode('parked') : exitCode('ok');
  } catch (error) {
    line.end();
    if (!(error instanceof Error && error.name === 'TimeoutError')) throw error;
    throw new UsageError('not everything was pushed in time: the rest stays queued and safe', exitCode('pending'));
  } finally {
    cancel();
  }
}

function outcomeLines({ pushed, parked, open }: ControlMethods['sync']['result']): readonly string[] {
  const changes = pushed === 1 ? '1 change' : `${pushed} changes`;
  const left = [...(parked.length > 0 ? [stillParked(parked.length)] : []), ...(open > 0 ? [stillOpen(open)] : [])];
  if (left.length > 0) return pushed > 0 ? [`pushed ${changes}`, ...left] : left;
  return [pushed > 0 ? `everything is with the service (pushed ${changes})` : 'everything is with the service'];
}

function stillParked(count: number): string {
  return count === 1
    ? '1 change is parked and needs you: cfs status says why'
    : `${count} changes are parked and need you: cfs status says why`;
}

/** Also counts deletions of files that a program still reads. */
function stillOpen(count: number): string {
  return count === 1
    ? '1 file is still open in a program, and is pushed when it is closed'
    : `${count} files are still open in programs, and are pushed when they are closed`;
}

/** The mount that holds `file`, and the file's path below its root. */
export async function mountAndPath(
  paths: Paths,
  flags: { readonly file: string | null; readonly account: string | null },
): Promise<{ mount: RunningMount; path: string | null }> {
  if (flags.file === null) {
    return { mount: await chooseMount(paths, { directory: null, account: flags.account }), path: null };
  }
  const states = await accountStates(paths);
  const running = states.filter(isRunning);
  // A link inside a mount stands for itself, as it may need a push. A link elsewhere is followed.
  const found = within(running, namedPathOf(flags.file)) ?? within(running, mountPathOf(flags.file));
  if (found === null) throw noMount(states, `${visible(flags.file)} is not in a running mount`);
  return found;
}

/** Mounts may be nested: the innermost one wins. */
function within(
  mounts: readonly RunningMount[],
  wanted: string,
): { readonly mount: RunningMount; readonly path: string | null } | null {
  let mount: RunningMount | null = null;
  for (const each of mounts) {
    const { directory } = each.status;
    const isIn = wanted === directory || wanted.startsWith(`${directory}/`);
    if (isIn && directory.length > (mount?.status.directory.length ?? 0)) mount = each;
  }
  if (mount === null) return null;
  const path = relative(mount.status.directory, wanted);
  return { mount, path: path === '' ? null : path };
}
