import { UsageError } from '../../base/errors.ts';
import { accountPaths, type Paths } from '../../config/paths.ts';
import { accountNames, NOT_SIGNED_IN, readAccountFile } from '../../mount/account-file.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { examineMachine, examineStores, type Looked, problemsOf } from '../doctor/examination.ts';
import { FINDINGS } from '../doctor/finding.ts';
import { type Machine, systemMachine } from '../doctor/machine.ts';
import { lookedText, reportJson, summaryText } from '../doctor/report.ts';
import { examineInProcess, type StoreExaminer } from '../doctor/store-examiner.ts';
import { WaitNotice } from '../doctor/wait-notice.ts';

export interface DoctorFlags {
  /** Only the stores, every byte of them. */
  readonly store: boolean;
  readonly json?: boolean;
  readonly account: string | null;
}

/**
 * `cfs doctor`: looks at everything that a mount needs and says of each fault what to do. Needs nothing that works: no mount,
 * no network, no sign-in. Changes nothing, but that a store's journal is taken over as at a start.
 *
 * Exit code: that of the first problem, as the command would end that it keeps from working; ok for warnings alone.
 *
 * @throws UsageError (signIn) for an account that is not kept here
 */
export async function doctorCommand(
  deps: {
    paths: Paths;
    env: Readonly<Record<string, string | undefined>>;
    print: (text: string) => void;
    warn: (text: string) => void;
    /** For tests: a machine with faults, and stores read by the same process. */
    machine?: Machine;
    examine?: StoreExaminer;
  },
  flags: DoctorFlags,
): Promise<number> {
  const { print } = deps;
  if (flags.account !== null || flags.store) checkAccount(deps.paths, flags.account);
  const machine = deps.machine ?? systemMachine(deps.env);
  const request = {
    paths: deps.paths,
    machine,
    notice: new WaitNotice({ clock: machine.clock, warn: deps.warn }),
    examine: deps.examine ?? examineInProcess,
    account: flags.account,
  };
  const looked: Looked[] = [];
  for await (const each of flags.store ? examineStores(request, 'bytes') : examineMachine(request)) {
    looked.push(each);
    if (flags.json !== true) print(`${lookedText(each)}\n`);
  }
  print(flags.json === true ? reportJson(looked) : `${summaryText(looked)}\n`);
  const [first] = problemsOf(looked);
  return first === undefined ? exitCode('ok') : exitCode(FINDINGS[first.name].exit);
}

/** @throws UsageError (signIn) where there is no such account, or none at all */
function checkAccount(paths: Paths, wanted: string | null): void {
  const names = accountNames(paths);
  if (names.length === 0) throw new UsageError(NOT_SIGNED_IN, exitCode('signIn'));
  const isKnown = (name: string): boolean =>
    wanted === null || wanted === name || wanted === readAccountFile(accountPaths(paths, name).accountFile).username;
  if (!names.some(isKnown)) throw new UsageError(`${visible(wanted ?? '')} is not signed in here`, exitCode('signIn'));
}
