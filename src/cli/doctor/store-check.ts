import { closeSync, existsSync, lstatSync, openSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { cacheBudget } from '../../config/cache-budget.ts';
import type { Options } from '../../config/options.ts';
import { storeDirectories } from '../../config/paths.ts';
import { formatBytes } from '../../config/units.ts';
import type { Status } from '../../control/status-model.ts';
import { visible } from '../../mount/mount-event.ts';
import type { KnownAccount } from './account-check.ts';
import { type Finding, finding } from './finding.ts';
import type { Machine } from './machine.ts';
import type { ExaminationDepth } from './store-examination.ts';
import type { StoreExaminer } from './store-examiner.ts';

const OTHERS = 0o077;
/** A disk with less free space counts as full: the need of one save, its journal record and LMDB's next pages; a share of small disks. */
const FREE_BYTES_MIN = 64 * 1024 ** 2;
const FREE_SHARE_MIN = 1 / 20;

export interface StoreReport {
  readonly findings: readonly Finding[];
  /** The results, or the reason why the store was not checked. */
  readonly note: string | null;
}

/** The stores of an account: that of the usual root, and one for each other root that was ever mounted. */
export function storesOf({ files }: KnownAccount): readonly string[] {
  const [usual, ...others] = storeDirectories(files);
  return [usual, ...others.filter((directory) => existsSync(directory))];
}

/** Checks the owner of a store, whether it is writable, and its consistency. */
export async function checkStoreOf(
  machine: Machine,
  { files }: KnownAccount,
  storeDirectory: string,
  how: {
    readonly examine: StoreExaminer;
    readonly depth: ExaminationDepth;
    readonly mounted: Pick<Status, 'pid' | 'directory'> | null;
  },
): Promise<StoreReport> {
  const shown = visible(storeDirectory);
  if (!existsSync(storeDirectory)) return { findings: checkWritable(files.directory), note: 'nothing is stored here' };
  const access = [
    ...checkExposure(files.directory, storeDirectory),
    ...checkOwner(machine, storeDirectory),
    ...checkWritable(storeDirectory),
  ];
  // Opening a store that was never mounted would create it.
  if (access.some(({ name }) => name === 'store-read-only') || !existsSync(join(storeDirectory, 'index')))
    return { findings: access, note: 'nothing is stored here' };

  const examined = await how.examine(storeDirectory, how.depth);
  switch (examined.state) {
    case 'opened': {
      const more = examined.findings - examined.shown.length;
      const found = examined.shown.map((what) => finding('store-damaged', what, shown));
      if (more > 0) found.push(finding('store-damaged', `and ${more} more`, shown));
      if (examined.pending > 0) found.push(waiting(examined.pending, storeDirectory === files.accountStoreDirectory));
      return { findings: [...access, ...found], note: lookedAt(examined) };
    }
    case 'in-use':
      return { note: null, ...inUse(examined.reason, how, access) };
    case 'newer':
      return { findings: [...access, finding('store-newer', examined.reason, shown)], note: null };
    case 'unopened':
      return { findings: [...access, finding('store-unopened', examined.reason, shown)], note: null };
    case 'broken':
      return { findings: [...access, finding('store-damaged', examined.reason, shown)], note: null };
    default:
      return examined satisfies never;
  }
}

/** A store that another process has open. A mount that answers is sound; only a check of every byte requires its end. */
function inUse(
  reason: string,
  { mounted, depth }: { readonly mounted: Pick<Status, 'pid' | 'directory'> | null; readonly depth: ExaminationDepth },
  access: readonly Finding[],
): { readonly findings: readonly Finding[]; readonly note?: string } {
  if (mounted === null) {
    const found = finding('store-in-use', reason);
    const pid = /process (\d+)/.exec(reason)?.[1];
    return { findings: [...access, { ...found, cure: found.cure.replace('kill N', `kill ${pid ?? 'N'}`) }] };
  }
  if (depth === 'structure')
    return { findings: access, note: `mounted by process ${mounted.pid}, so it was not checked` };
  const shown = visible(mounted.directory);
  return {
    findings: [...access, finding('store-mounted', `the store is mounted at ${shown}: nothing was read`, shown)],
  };
}

/** Changes in a store that no process has open: no mount reports or pushes them. */
function waiting(count: number, isOfAccountRoot: boolean): Finding {
  const root = isOfAccountRoot ? '--root account' : '--root briefcase';
  const what = `${count} ${count === 1 ? 'change waits' : 'changes wait'} in the store of ${root}, which is not mounted`;
  return finding('changes-waiting', what);
}

/** Free space on the disk of the store, or of the folder in which it will be created. */
export function* checkDisk(
  machine: Machine,
  directory: string,
  options: Pick<Options, 'cacheBytes' | 'cacheReserveBytes'>,
): Generator<Finding> {
  const path = nearest(directory);
  const shown = visible(path);
  let disk: ReturnType<Machine['disk']>;
  try {
    disk = machine.disk(path);
  } catch {
    return; // the check of the store reports the fault
  }
  const free = `${formatBytes(disk.freeBytes)} of ${formatBytes(disk.totalBytes)} free on the disk of ${shown}`;
  const { reserveBytes } = cacheBudget(options, disk);
  if (disk.freeBytes < Math.min(FREE_BYTES_MIN, disk.totalBytes * FREE_SHARE_MIN))
    yield finding('disk-full', free, shown);
  else if (disk.freeBytes < reserveBytes) {
    yield finding('disk-below-reserve', `${free}, less than the reserve of ${formatBytes(reserveBytes)}`, shown);
  }
}

/** Other users can reach the store only through the account's directory: it suffices if one of the two is private. */
function* checkExposure(directory: string, storeDirectory: string): Generator<Finding> {
  const modes = [directory, storeDirectory].map((path) => lstatSync(path).mode);
  if (!modes.every((mode) => (mode & OTHERS) !== 0)) return;
  const shown = visible(directory);
  const mode = ((modes[0] ?? 0) & 0o777).toString(8);
  yield finding('store-exposed', `${shown} and the store in it are open to others (mode ${mode})`, shown);
}

/** Reports only the first file of another owner. */
function* checkOwner(machine: Machine, directory: string): Generator<Finding> {
  for (const path of [directory, ...inside(directory)]) {
    const { uid } = lstatSync(path);
    if (uid === machine.uid) continue;
    const what = `${visible(path)} belongs to user ${uid}, and you are ${machine.uid}`;
    yield finding('store-foreign', what, visible(directory));
    return;
  }
}

function inside(directory: string): readonly string[] {
  try {
    return readdirSync(directory).map((name) => join(directory, name));
  } catch {
    return [];
  }
}

/** Writes a probe file: permissions do not reveal a read-only mount. */
function checkWritable(directory: string): readonly Finding[] {
  const probe = join(directory, `.doctor.${process.pid}`);
  try {
    closeSync(openSync(probe, 'wx', 0o600));
    rmSync(probe);
    return [];
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOSPC') return []; // the check of the disk reports it
    const shown = visible(directory);
    return [finding('store-read-only', `nothing can be written in ${shown} (${code})`, shown)];
  }
}

/** The path itself, or the nearest existing folder above it. */
function nearest(path: string): string {
  return existsSync(path) || dirname(path) === path ? path : nearest(dirname(path));
}

function lookedAt({ nodes, contents }: { readonly nodes: number; readonly contents: number }): string {
  return `${nodes} ${nodes === 1 ? 'entry' : 'entries'} and ${contents} ${contents === 1 ? 'content' : 'contents'} checked`;
}
