import { fstatSync } from 'node:fs';
import { systemClock } from '../../base/clock.ts';
import { programVersion } from '../../base/program-version.ts';
import type { Options } from '../../config/options.ts';
import type { Paths } from '../../config/paths.ts';
import { formatDuration } from '../../config/units.ts';
import { callControl } from '../../control/client.ts';
import { chooseAccount } from '../../mount/account-file.ts';
import type { DashOOptions } from '../../mount/dash-o-options.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { launchMount, mountingProcess } from '../../mount/launch.ts';
import { connectionNote, visible } from '../../mount/mount-event.ts';
import { mountPathOf } from '../../mount/mount-point.ts';
import { mountRequest, prepareMount, runningMount } from '../../mount/mount-preparation.ts';
import { haveSameLayouts, LAYOUTS } from '../../mount/mount-request.ts';
import { accountStates } from '../../mount/running-mounts.ts';
import { expectLayouts, upgradeMount } from '../../mount/upgrade.ts';
import { warningsFor } from './mount-warnings.ts';
import { ServiceManager } from './service-manager.ts';
import { SignalRelay } from './signal-relay.ts';

export interface MountFlags {
  readonly directory: string;
  readonly account: string | null;
  readonly foreground: boolean;
  readonly words: DashOOptions;
  /** The options of the command line and of `-o`, as flags. */
  readonly flags: readonly string[];
}

/**
 * `cfs-mount DIR`: checks everything that can be checked beforehand, starts the mounting process, and returns when the mount
 * answers; in the foreground, when it has ended.
 */
export async function mountCommand(
  deps: {
    paths: Paths;
    options: Options;
    env: Readonly<Record<string, string | undefined>>;
    print: (text: string) => void;
    warn: (text: string) => void;
    /** Another program that mounts, for tests. */
    program?: string;
  },
  flags: MountFlags,
): Promise<number> {
  for (const sentence of warningsFor(deps.env)) deps.warn(`cfs-mount: ${visible(sentence)}\n`);
  const upgraded = flags.foreground ? null : await upgradeIfRunning(deps, flags);
  if (upgraded !== null) {
    deps.print(`${upgraded}\n`);
    return exitCode('ok');
  }
  const toJournal = flags.foreground && isJournal(deps.env.JOURNAL_STREAM);
  const place = { ...flags, toJournal };
  const stored = deps.options.continuity ? ServiceManager.storedMount(deps.env) : null;
  const { request, account } =
    stored === null ? await prepareMount(deps, flags.account, place) : runningMount(deps, flags.account, place);
  const where = visible(request.directory);
  const manager = ServiceManager.of(deps.env);
  const signals = new SignalRelay(() => manager?.stopping(`unmounting ${where}`));
  let stopSigns = (): void => {};
  let note: string;
  try {
    const mount = await launchMount(request, { env: deps.env, program: deps.program, stored });
    // In the background the mounting process is the service from now on, and this one ends.
    const isBackground = !flags.foreground && !signals.interrupted;
    note = connectionNote(mount.connection);
    manager?.ready(`mounted ${visible(account.username)} at ${where}${note}`, isBackground ? mount.pid : null);
    if (!isBackground) {
      if (manager !== null) stopSigns = giveSigns(manager, request.socketPath);
      return await signals.passTo(mount);
    }
    mount.release();
  } finally {
    stopSigns();
    signals.dispose();
  }
  deps.print(`mounted ${visible(account.username)} at ${where}${note}\n`);
  return exitCode('ok');
}

/**
 * Continues a mount of another version on the same directory, if it runs with `--continuity`. @returns what was done; null if there is none
 *
 * @throws UsageError if this version cannot continue it
 */
async function upgradeIfRunning(
  { paths, options, program }: { paths: Paths; options: Options; program?: string },
  flags: MountFlags,
): Promise<string | null> {
  const { name } = chooseAccount(paths, flags.account);
  const directory = mountPathOf(flags.directory);
  const state = (await accountStates(paths)).find((each) => each.name === name);
  const running = state?.status;
  if (state === undefined || running == null || running.directory !== directory) return null;
  const { version: from = '', continuity, storeLayout } = running;
  const version = programVersion();
  if (continuity === undefined || from === version || running.phase !== 'running') return null;
  expectLayouts(from, version, haveSameLayouts(LAYOUTS, { store: storeLayout ?? 0, handover: continuity.layout }));
  const request = mountRequest({ paths, options }, { ...flags, directory, account: name });
  const { continuity: now } = await upgradeMount({ socketPath: state.socketPath, clock: systemClock }, running, {
    ...{ version, request, program: mountingProcess(program) },
  });
  return `upgraded ${visible(directory)} from version ${from} to ${version}; programs waited ${formatDuration(now?.lastPauseMs ?? 0)}`;
}

/** Whether standard error is a stream of the journal, as systemd.exec(5) has it: its device and inode are named. */
function isJournal(stream: string | undefined): boolean {
  if (stream === undefined) return false;
  const { dev, ino } = fstatSync(2);
  return stream === `${dev}:${ino}`;
}

/** Sends watchdog notifications while the mount answers at its control socket. @returns a function that stops it */
function giveSigns(manager: ServiceManager, socketPath: string): () => void {
  const { signEveryMs } = manager;
  if (signEveryMs === null) return () => {};
  const timer = setInterval(() => {
    const signal = AbortSignal.timeout(signEveryMs);
    callControl(socketPath, 'status', {}, { signal }).then(
      () => manager.alive(),
      () => {}, // without an answer no notification is sent, and the manager decides
    );
  }, signEveryMs);
  return () => clearInterval(timer);
}
