import type { Paths } from '../../config/paths.ts';
import { visible } from '../../mount/mount-event.ts';
import { ownerOf } from '../../store/owner-lock.ts';
import { checkAccounts, checkConfiguration, type KnownAccount } from './account-check.ts';
import { type Area, FINDINGS, type Finding } from './finding.ts';
import { checkFuse } from './fuse-check.ts';
import type { Machine } from './machine.ts';
import { checkMounts, checkSocket } from './mount-check.ts';
import { checkService } from './service-check.ts';
import { checkDisk, checkStoreOf, storesOf } from './store-check.ts';
import type { ExaminationDepth } from './store-examination.ts';
import type { StoreExaminer } from './store-examiner.ts';
import type { WaitNotice } from './wait-notice.ts';

/** One result of a check. */
export interface Looked {
  readonly area: Area;
  /** The account; null if the check concerns all. */
  readonly subject: string | null;
  /** The message without a finding. */
  readonly note: string | null;
  readonly findings: readonly Finding[];
}

export interface ExaminationRequest {
  readonly machine: Machine;
  readonly paths: Paths;
  readonly examine: StoreExaminer;
  readonly notice: WaitNotice;
  /** The account by its name or user name; null: all. */
  readonly account: string | null;
}

/** All checks, in order of dependence. They are independent: a failed one hides no other. */
export async function* examineMachine(request: ExaminationRequest): AsyncGenerator<Looked> {
  const { machine, paths, notice } = request;
  const { options, findings } = checkConfiguration(paths, machine.env);
  const all = (area: Area, found: Iterable<Finding>, note: string | null = null): Looked => ({
    area,
    subject: null,
    note,
    findings: [...found],
  });
  yield all('fuse', checkFuse(machine, options));
  yield all('configuration', findings);
  const known = checkAccounts(paths);
  const accounts = known.accounts.filter((account) => isMeant(account, request.account));
  yield all('account', known.findings, accounts.map(({ title }) => title).join(', '));
  const mounts = await checkMounts(machine, notice);
  const silentPids: number[] = [];
  for (const account of accounts) {
    const about = { subject: account.title };
    const socket = await checkSocket(machine, account, notice);
    const found = await notice.during(`the service of ${account.title} to answer`, () =>
      checkService(machine, account.account, options),
    );
    yield { ...about, area: 'service', note: null, findings: found };
    const how = { examine: request.examine, depth: 'structure', mounted: socket.status } as const;
    // A hanging mount has its store open.
    const isSilent = socket.findings.some(({ name }) => name === 'mount-silent');
    for (const directory of storesOf(account)) {
      const store = await notice.during(`the check of the store in ${visible(directory)}`, () =>
        checkStoreOf(machine, account, directory, how),
      );
      const stored = store.findings.filter(({ name }) => !(isSilent && name === 'store-in-use'));
      yield { ...about, area: 'store', note: store.note, findings: stored };
    }
    const note = socket.status === null ? 'not mounted' : `mounted at ${socket.status.directory}`;
    const pid = isSilent ? ownerAmong(storesOf(account)) : null;
    if (pid !== null) silentPids.push(pid);
    // The hanging directory is the same fault, which is reported once, below.
    const isReportedBelow = pid !== null && mounts.some(({ name }) => name === 'mount-hangs');
    const reported = socket.findings.filter(({ name }) => !(isReportedBelow && name === 'mount-silent'));
    yield { ...about, area: 'mount', note, findings: reported };
  }
  yield all('disk', checkDisk(machine, paths.accountsDirectory, options));
  yield all('mount', silentPids.length === 1 ? mounts.map((found) => withPid(found, silentPids[0] as number)) : mounts);
}

/** The process that has one of the stores open; null for none. */
function ownerAmong(stores: readonly string[]): number | null {
  for (const directory of stores) {
    const owner = ownerOf(directory);
    if (owner !== null) return owner;
  }
  return null;
}

function withPid(found: Finding, pid: number): Finding {
  if (found.name !== 'mount-hangs') return found;
  return { ...found, cure: found.cure.replace('its process (mounting-process.cjs in ps(1))', String(pid)) };
}

/** The stores alone, to the given depth. */
export async function* examineStores(
  request: ExaminationRequest,
  depth: ExaminationDepth,
): AsyncGenerator<Looked & { readonly subject: string }> {
  const { machine, paths, examine, notice } = request;
  for (const account of checkAccounts(paths).accounts) {
    if (!isMeant(account, request.account)) continue;
    const { status } = await checkSocket(machine, account, notice);
    for (const directory of storesOf(account)) {
      const how = { examine, depth, mounted: status };
      const store = await notice.during(`the check of the store in ${visible(directory)}`, () =>
        checkStoreOf(machine, account, directory, how),
      );
      yield { area: 'store', subject: account.title, note: store.note, findings: store.findings };
    }
  }
}

/** Problems only. The account of `--account` must exist. */
export function problemsOf(looked: readonly Looked[]): readonly Finding[] {
  return looked.flatMap(({ findings }) => findings).filter(({ name }) => FINDINGS[name].severity === 'problem');
}

function isMeant({ name, account }: KnownAccount, wanted: string | null): boolean {
  return wanted === null || wanted === name || wanted === account.username;
}
