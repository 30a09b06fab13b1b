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
  /** Check only the stores, with every byte. */
  readonly store: boolean;
  readonly json?: boolean;
  readonly account: string | null;
}

/**
 * `cfs doctor`: checks everything that a mount needs and prints a cure for each fault. It requires no mount, no network and no
 * sign-in. It changes nothing, except that the journal of a store is replayed as at a start.
 *
 * Exit code: that of the first problem, which is the exit code of the command that it breaks; ok for warnings alone.
 *
 * @throws UsageError (signIn) for an unknown account
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

/** @throws UsageError (signIn) for an unknown account, or without any account */
function checkAccount(paths: Paths, wanted: string | null): void {
  const names = accountNames(paths);
  if (names.length === 0) throw new UsageError(NOT_SIGNED_IN, exitCode('signIn'));
  const isKnown = (name: string): boolean =>
    wanted === null || wanted === name || wanted === readAccountFile(accountPaths(paths, name).accountFile).username;
  if (!names.some(isKnown)) throw new UsageError(`${visible(wanted ?? '')} is not signed in here`, exitCode('signIn'));
}
