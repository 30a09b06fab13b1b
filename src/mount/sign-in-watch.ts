import type { Clock } from '../base/clock.ts';
import { type Account, readAccountFile } from './account-file.ts';

/**
 * Waits for `cfs login` while the service rejects the sign-in of a running mount: polls the account's file, and only during that
 * time. `cfs login` therefore needs no knowledge of mounts, and a mount without its control socket recovers too.
 */
export class SignInWatch {
  readonly #accountFile: string;
  readonly #clock: Clock;
  readonly #onSignIn: (account: Account) => void;
  #inUse: Account;
  #cancel: (() => void) | null = null;

  /** @param deps.inUse the content of the file at the start */
  constructor(deps: { accountFile: string; inUse: Account; clock: Clock; onSignIn: (account: Account) => void }) {
    this.#accountFile = deps.accountFile;
    this.#inUse = deps.inUse;
    this.#clock = deps.clock;
    this.#onSignIn = deps.onSignIn;
  }

  /** Polls until `stop`. Each new sign-in is reported once, even if the service rejects it too. */
  start(): void {
    if (this.#cancel === null) this.#look();
  }

  /** Reports another sign-in that was made meanwhile. */
  once(): void {
    this.start();
    this.stop();
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
