import { systemClock } from '../../base/clock.ts';
import { StorageError, UsageError } from '../../base/errors.ts';
import { formatBytes } from '../../config/units.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CopyTarget } from '../../server/installation.ts';
import { compareInstallations } from '../../server/installation-comparison.ts';
import { copyInstallation } from '../../server/installation-copy.ts';
import { LocalInstallation } from '../../server/local-installation.ts';
import { StoreError } from '../../server/object-store.ts';
import { Refusal } from '../../server/refusal.ts';
import type { Invocation } from '../invocation.ts';
import { databaseUrl, isDatabaseUrl } from './database-url.ts';
import { openObjects, publicOriginOf } from './serve-command.ts';

interface Printer {
  readonly print: (text: string) => void;
}

/** `cfs serve copy`: a copy between back ends, or with `--check` their comparison. @returns the exit code */
export async function copyData(given: Invocation, context: Printer): Promise<number> {
  try {
    return await copyOrCompare(given, context);
  } catch (error) {
    // Of a database or an object store that does not answer.
    if (!(error instanceof Refusal || error instanceof StoreError)) throw error;
    throw new StorageError(`${error.message}. Repeat the command to continue`, { cause: error });
  }
}

async function copyOrCompare(given: Invocation, context: Printer): Promise<number> {
  const [from, to] = [given.text('--from'), given.text('--to')];
  if (from === null || to === null) throw new UsageError('give --from and --to: a data directory, or postgres://…');
  const isCheck = given.has('--check');
  const [fromObjects, toObjects] = [given.text('--from-objects'), given.text('--to-objects')];
  if (!isCheck && toObjects !== null && !isDatabaseUrl(to))
    throw new UsageError(
      '--to-objects: a server moves the data of a directory. Start it with --objects after the copy',
    );
  const wantedOrigin = given.text('--public-origin');
  const publicOrigin = wantedOrigin === null ? null : publicOriginOf(wantedOrigin);
  const source = await openInstallation(from, { objects: fromObjects, flag: '--from', isNew: false });
  try {
    const target = await openInstallation(to, { objects: toObjects, flag: '--to', isNew: !isCheck });
    try {
      if ((await source.unfinishedCopyOf()) !== null)
        throw new UsageError(`the copy into ${source.name} was interrupted: repeat it`);
      return isCheck ? await compare(source, target, context) : await copy(source, target, publicOrigin, context);
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

async function copy(source: CopyTarget, target: CopyTarget, wanted: string | null, context: Printer): Promise<number> {
  const origin = wanted ?? (await source.origin());
  if (origin === null) throw new UsageError('no server has run on the source: give --public-origin');
  let reportedMs = systemClock.elapsedMs();
  const { entries, versions, bytes } = await copyInstallation({
    source,
    target,
    origin,
    report: (totals) => {
      if (systemClock.elapsedMs() - reportedMs < REPORT_EVERY_MS) return;
      reportedMs = systemClock.elapsedMs();
      context.print(`${totals.entries} entries, ${totals.versions} versions, ${formatBytes(totals.bytes)} so far\n`);
    },
  });
  context.print(`copied ${entries} entries, ${versions} versions, ${bytes} bytes; URLs begin with ${origin}\n`);
  context.print('compare both with --check before a server starts\n');
  return exitCode('ok');
}

async function compare(source: CopyTarget, target: CopyTarget, context: Printer): Promise<number> {
  if ((await target.unfinishedCopyOf()) !== null)
    throw new UsageError(`the copy into ${target.name} was interrupted: repeat it without --check`);
  let shown = 0;
  const { entries, versions, bytes, differences } = await compareInstallations(source, target, (difference) => {
    shown += 1;
    if (shown <= SHOWN_MAX) context.print(`${visible(difference)}\n`);
  });
  context.print(`compared ${entries} entries, ${versions} versions, ${bytes} bytes: ${differences} differences\n`);
  return exitCode(differences === 0 ? 'ok' : 'store');
}

/** The client of the database is loaded only for one. */
async function openInstallation(
  location: string,
  options: { readonly objects: string | null; readonly flag: string; readonly isNew: boolean },
): Promise<CopyTarget> {
  const { objects, flag, isNew } = options;
  if (!isDatabaseUrl(location))
    return LocalInstallation.open(location, { objects: await openObjects(objects, false, `${flag}-objects`), isNew });
  const url = databaseUrl(location, flag);
  const store = await openObjects(objects, true, `${flag}-objects`);
  if (store === null) throw new UsageError(`${flag} is a database: give ${flag}-objects`);
  const { PostgresInstallation } = await import('../../server/postgres/postgres-installation.ts');
  return PostgresInstallation.open(url, store, { isNew });
}

const REPORT_EVERY_MS = 10_000;
/** Differences that are shown; all are counted. */
const SHOWN_MAX = 100;
