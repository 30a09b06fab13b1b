import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { OPTIONS, type OptionKey } from '../config/options.ts';
import { askStatus, callControl, NoMountError, NoRoomError } from '../control/client.ts';
import type { Status } from '../control/status-model.ts';
import { exitCode } from './exit-codes.ts';
import { commandOf, haveSameLayouts, LAYOUTS, type MountRequest } from './mount-request.ts';

/** A version that wants to continue a running mount. */
export interface UpgradeOffer {
  readonly version: string;
  /** The command of its mounting process. */
  readonly program: readonly string[];
  readonly request: MountRequest;
}

/** Limit of an upgrade: twice a start. */
const UPGRADE_MS_MAX = 120_000;
const LOOK_AGAIN_MS = 20;

/** The options that are part of the kernel's mount, or of the processes around it. */
const FIXED: readonly OptionKey[] = [
  ...(['readOnly', 'allowOther', 'root', 'binding', 'continuity', 'maskFeatures', 'logFile'] as const),
];

/**
 * In the process that ends: the command of its successor, which keeps the places of this mount and has the options of the offer.
 *
 * @throws UsageError (alreadyMounted) if the versions have different layouts, or an option cannot change while mounted
 */
export function successorCommand(running: MountRequest, version: string, offer: UpgradeOffer): readonly string[] {
  const { request, program } = offer;
  expectLayouts(version, offer.version, haveSameLayouts(LAYOUTS, request.layouts));
  const fixed = FIXED.find((key) => !isSame(running.options[key], request.options[key]));
  const differs = fixed !== undefined ? OPTIONS[fixed].flag : isSame(running.words, request.words) ? null : '-o';
  if (differs !== null)
    throw new UsageError(
      `a mount cannot change ${differs} while it runs: mount with the options of the running mount, or run cfs umount first`,
      exitCode('alreadyMounted'),
    );
  const { directory, storeDirectory, socketPath, bootSocketPath, logFile, foreground, source } = running;
  const places = { source, directory, storeDirectory, socketPath, bootSocketPath, logFile, foreground };
  return commandOf({ ...request, ...places }, program);
}

/** @throws UsageError (alreadyMounted) unless `isSame` */
export function expectLayouts(running: string, offered: string, isSame: boolean): void {
  if (isSame) return;
  throw new UsageError(
    `version ${offered} cannot continue the running mount of version ${running}, because it stores data in another layout: run cfs umount, then mount again`,
    exitCode('alreadyMounted'),
  );
}

/**
 * Lets the version of `offer` continue a running mount. Programs in the mount only wait.
 *
 * @throws UsageError if the mount refuses, or the new version does not start; the mount then continues with its version
 */
export async function upgradeMount(
  { socketPath, clock }: { readonly socketPath: string; readonly clock: Clock },
  running: Status,
  offer: UpgradeOffer,
): Promise<Status> {
  const signal = AbortSignal.timeout(UPGRADE_MS_MAX);
  await callControl(socketPath, 'upgrade', offer, { signal });
  for (;;) {
    const status = await askStatus(socketPath, signal).catch((error: unknown) => {
      if (error instanceof NoMountError || error instanceof NoRoomError) return null; // between the two processes
      throw error;
    });
    // The control socket answers before the kernel's requests are answered.
    if (status !== null && status.pid !== running.pid && status.continuity?.lastPauseMs != null) {
      if (status.version === offer.version) return status;
      throw new UsageError(
        `version ${offer.version} did not start, and version ${status.version} continues the mount: see the log`,
        exitCode('failure'),
      );
    }
    await clock.sleep(LOOK_AGAIN_MS, signal);
  }
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
