import type { Clock } from '../../base/clock.ts';
import { type Account, readAccountFile } from '../account-file.ts';

/**
 * Waits for `cfs login` while the service refuses the sign-in that a mount began with: looks at the account's file, and only as long as
 * that lasts. Whoever signs in needs to know of no mount, and a mount whose control socket is gone is cured as well.
 */
export class SignInWatch {
  readonly #accountFile: string;
  readonly #clock: Clock;
  readonly #onSignIn: (account: Account) => void;
  #inUse: Account;
  #cancel: (() => void) | null = null;

  /** @param deps.inUse what was read of the file at the start */
  constructor(deps: { accountFile: string; inUse: Account; clock: Clock; onSignIn: (account: Account) => void }) {
    this.#accountFile = deps.accountFile;
    this.#inUse = deps.inUse;
    this.#clock = deps.clock;
    this.#onSignIn = deps.onSignIn;
  }

  /** Looks now, then again and again until `stop`. A sign-in is told once, also one that is refused in its turn. */
  start(): void {
    if (this.#cancel === null) this.#look();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = null;
  }

  #look(): void {
    this.#cancel = this.#clock.after(LOOK_MS, () => this.#look());
    let account: Account;
    try {
      account = readAccountFile(this.#accountFile);
    } catch {
      return; // signed out: there may be another sign-in yet
    }
    const { refreshToken, application, accessKeyId, privateAccessKey } = this.#inUse;
    const isSame =
      account.refreshToken === refreshToken &&
      account.application === application &&
      account.accessKeyId === accessKeyId &&
      account.privateAccessKey === privateAccessKey;
    if (isSame) return;
    this.#inUse = account;
    this.#onSignIn(account);
  }
}

const LOOK_MS = 1000;
