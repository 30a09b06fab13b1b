import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { callControl, NoMountError } from '../control/client.ts';
import type { Status } from '../control/status-model.ts';
import { mountOn } from '../kernel/mount-table.ts';
import { SCHEMA_VERSION } from '../store/schema-version.ts';
import { exitCode } from './exit-codes.ts';

/** Limit of the wait for the store of a mount that is ending. After it the start fails, and names the process that has the store. */
const HANDOVER_MS_MAX = 10_000;
const TRY_AGAIN_MS = 50;
/** The layout of all mounts that do not report one. */
const UNREPORTED_LAYOUT = 3;

/**
 * Opens the store. If its owner is a mount that is ending (`fusermount3 -u` a moment ago), the owner is asked to stop pushing and to release
 * the store. The new owner pushes the rest.
 *
 * A mount whose program stores another layout is not asked. The new layout cannot be converted back, so this start must not cut its pushes
 * short.
 *
 * @throws UsageError (alreadyMounted) naming the process that keeps the store, or stores another layout · what `open` throws
 */
export async function afterHandover<T>(
  deps: {
    readonly socketPath: string;
    /** The control socket of a mount that started at boot, without XDG_RUNTIME_DIR. */
    readonly bootSocketPath: string;
    readonly clock: Pick<Clock, 'elapsedMs' | 'sleep'>;
  },
  open: () => Promise<T>,
): Promise<T> {
  const { socketPath, bootSocketPath, clock } = deps;
  const startedMs = clock.elapsedMs();
  for (let owner: Owner = 'in use'; ; ) {
    try {
      return await open();
    } catch (error) {
      const isInUse = error instanceof UsageError && error.exitCode === exitCode('alreadyMounted');
      if (!isInUse || clock.elapsedMs() - startedMs >= HANDOVER_MS_MAX) throw error;
      if (owner !== 'ending') {
        owner = (await askToPutDown(socketPath)) ?? (await askToPutDown(bootSocketPath)) ?? 'ending';
      }
      if (owner === 'in use') throw error;
      await clock.sleep(TRY_AGAIN_MS);
    }
  }
}

/** @throws UsageError (alreadyMounted) */
function expectSameLayout({
  pid,
  version,
  storeLayout = UNREPORTED_LAYOUT,
}: Omit<Status, 'phase' | 'directory'>): void {
  if (storeLayout === SCHEMA_VERSION) return;
  const running = version === undefined ? 'another version' : `version ${version}`;
  throw new UsageError(
    `a mount of ${running} is ending (process ${pid}), and this version stores its data in another layout: wait until it has ended (cfs status), then mount again`,
    exitCode('alreadyMounted'),
  );
}

/** The state of the store's owner. `unmounted`: its mount is gone, but the process has not noticed yet. */
type Owner = 'in use' | 'unmounted' | 'ending';

/** @returns null if no process listens: the store is about to be released */
async function askToPutDown(socketPath: string): Promise<Owner | null> {
  const signal = AbortSignal.timeout(HANDOVER_MS_MAX);
  try {
    const { phase, directory, ...owner } = await callControl(socketPath, 'status', {}, { signal });
    if (phase === 'running' && mountOn(directory) !== null) return 'in use';
    expectSameLayout(owner);
    if (phase === 'running') return 'unmounted';
    await callControl(socketPath, 'umount', { timeoutMs: 0 }, { signal });
  } catch (error) {
    if (error instanceof NoMountError) return null;
    if (!signal.aborted) throw error; // the owner hangs and keeps the store
  }
  return 'ending';
}
