import type { Clock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { processLife } from '../../base/process-life.ts';
import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import { mountOn } from '../../kernel/mount-table.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { mountPathOf } from '../../mount/mount-point.ts';
import { isOurs, stateOf } from '../../mount/mount-state.ts';
import { chooseMount } from '../../mount/running-mounts.ts';
import { systemBindingOfMount } from '../../mount/system-binding.ts';
import type { CommandOutput } from '../command-output.ts';
import { ProgressLine } from './progress-line.ts';

export interface UmountFlags {
  readonly directory: string | null;
  readonly account: string | null;
  /** Limit of pushing pending changes; 0: none are pushed; null: until everything is pushed. */
  readonly timeoutMs: number | null;
}

/** Limit for the end of the process after its answer. */
const END_MS_MAX = 10_000;

/**
 * `cfs umount [DIR]`: ends a mount in order. Exit code: ok if everything is acknowledged, pending or parked if
 * changes stay here. The mount has ended in all three cases.
 *
 * @throws UsageError · StorageError if it could not be unmounted
 */
export async function umountCommand(
  deps: CommandOutput & { paths: Paths; clock: Clock },
  flags: UmountFlags,
): Promise<number> {
  if (flags.directory !== null && (await freeDeadMount(flags.directory))) {
    deps.print(
      `removed the dead mount at ${visible(flags.directory)}; saved changes are kept and pushed after the next mount\n`,
    );
    return exitCode('ok');
  }
  const mount = await chooseMount(deps.paths, flags);
  const waiting = mount.status.pending.count;
  const isPaused = mount.status.paused != null;
  if (deps.redraw !== null && waiting > 0 && flags.timeoutMs !== 0 && !isPaused)
    deps.warn(`pushing pending changes (${changes(waiting)}); Ctrl-C stops waiting, the unmount continues\n`);
  const line = new ProgressLine({
    clock: deps.clock,
    output: deps,
    hint:
      flags.timeoutMs === 0
        ? null
        : 'cfs umount --now unmounts immediately: the rest is kept here and pushed after the next mount',
  });
  const outcome = await callControl(
    mount.socketPath,
    'umount',
    { timeoutMs: flags.timeoutMs },
    { onProgress: (progress) => line.show(progress) },
  ).finally(() => line.end());
  await processEnded(mount.status.pid, deps.clock);

  const directory = visible(mount.status.directory);
  deps.print(`unmounted ${directory}${outcome.busy ? ' (it was busy: programs that still use it get errors)' : ''}\n`);
  if (outcome.pending === 0) return exitCode('ok');
  const queued = outcome.pending - outcome.parked;
  if (queued > 0)
    deps.warn(
      isPaused
        ? `${changes(queued)} not pushed: pushing is paused; kept here until cfs resume after the next mount, nothing is lost\n`
        : `${changes(queued)} not pushed yet; kept here and pushed after the next mount, nothing is lost\n`,
    );
  // No start pushes these: they wait for a person.
  if (outcome.parked > 0)
    deps.warn(
      `${changes(outcome.parked)} parked; kept here: after the next mount cfs status shows the reason, cfs retry retries\n`,
    );
  for (const { kind, path } of outcome.left) deps.warn(`  ${kind} ${visible(path)}\n`);
  if (outcome.pending > outcome.left.length) deps.warn(`  and ${outcome.pending - outcome.left.length} more\n`);
  return outcome.parked > 0 ? exitCode('parked') : exitCode('pending');
}

function changes(count: number): string {
  return count === 1 ? '1 change' : `${count} changes`;
}

/** Removes a dead mount of ours. @returns whether there was one */
async function freeDeadMount(directory: string): Promise<boolean> {
  const path = mountPathOf(directory);
  const mount = mountOn(path);
  if (mount === null || !isOurs(mount) || (await stateOf(mount)) !== 'dead') return false;
  const why = await systemBindingOfMount(mount)?.detachDead(path);
  if (why != null)
    throw new UsageError(
      `cannot remove the dead mount at ${visible(path)}: ${visible(why)}`,
      exitCode('alreadyMounted'),
    );
  return true;
}

/** Waits for the end of the process: a script may remove the state directory next. */
async function processEnded(pid: number, clock: Clock): Promise<void> {
  const started = clock.elapsedMs();
  while (clock.elapsedMs() - started < END_MS_MAX) {
    if (processLife(pid) === 'ended') return;
    await new Promise<void>((resolve) => setTimeout(resolve, 10)); // not clock.sleep: that one does not keep the process alive
  }
}
