import { systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { programVersion } from '../base/program-version.ts';
import type { Status } from '../control/status-model.ts';
import { type Keeper, tellKeeper } from '../kernel/keeper.ts';
import { KeeperLine } from '../kernel/keeper-line.ts';
import { exitCode } from './exit-codes.ts';
import { haveSameLayouts, LAYOUTS, type MountRequest } from './mount-request.ts';
import { successorCommand, type UpgradeOffer } from './upgrade.ts';

/** Until a standby must have loaded its program. */
const STANDBY_MS_MAX = 60_000;
/** With `--standby=on`: the start of a mount is not delayed by the load of a second process. */
const STANDBY_AFTER_MS = 10_000;
/** After a death, another one may follow. */
const NEXT_STANDBY_AFTER_MS = 2_000;
/** After a failure. */
const RETRY_AFTER_MS = 60_000;

/** The place of this process among those of its mount, with `--continuity`, and its messages from and to the keeper. */
export class Continuity {
  readonly #request: MountRequest;
  readonly #log: Logger;
  readonly #line = new KeeperLine();
  #keeper: Keeper | null = null;
  /** How long programs waited for this process, after the end of the one before it; null for the first process. */
  #pauseMs: number | null = null;
  #hasStandby = false;
  #requests: 'resent' | 'kept' = 'resent';
  #cancelStandby: () => void = () => {};

  private constructor(request: MountRequest, log: Logger) {
    this.#request = request;
    this.#log = log;
  }

  /**
   * A package may have been replaced while its mount runs. The program that a keeper starts is then another version.
   *
   * @throws UsageError if it must not continue; the mount ends
   */
  static of(request: MountRequest, log: Logger): Continuity {
    if (haveSameLayouts(request.layouts, LAYOUTS)) return new Continuity(request, log);
    tellKeeper('letsGo');
    throw new UsageError(
      `the program was replaced by version ${programVersion()}, which stores data in another layout: the mount ends; unmount it, then mount again`,
      exitCode('failure'),
    );
  }

  /** For a standby that has loaded its program: waits until it continues the mount. @returns null when the keeper ends */
  turn(): Promise<Keeper | null> {
    return this.#line.turn();
  }

  /** The kernel is answered: the keeper may pass signals on from now on. */
  serves(keeper: Keeper, doesResend: boolean): void {
    this.#keeper = keeper;
    this.#requests = doesResend ? 'resent' : 'kept';
    tellKeeper('ready');
    this.#line.onLost = () => this.#standbyLost();
    this.#standByAfter(keeper.generation === 0 ? STANDBY_AFTER_MS : NEXT_STANDBY_AFTER_MS);
    if (keeper.generation === 0) return;
    this.#pauseMs = Math.max(0, systemClock.nowMs() - keeper.diedMs);
    this.#log.warn({ ...keeper, pauseMs: this.#pauseMs }, 'continues the mount of an earlier process');
  }

  /** Starts a process of another version, and waits until it can continue. @throws UsageError if it cannot */
  async prepareUpgrade(version: string, offer: UpgradeOffer): Promise<void> {
    const command = successorCommand(this.#request, version, offer);
    this.#log.info({ from: version, to: offer.version }, 'upgrading');
    this.#cancelStandby();
    this.#hasStandby = false;
    try {
      await this.#line.prepare(command, STANDBY_MS_MAX);
    } catch (error) {
      this.#standByAfter(NEXT_STANDBY_AFTER_MS);
      const reason = error instanceof Error ? error.message : String(error);
      throw new UsageError(
        `version ${offer.version} cannot continue the mount of version ${version}: ${reason}; see the log`,
        exitCode('failure'),
      );
    }
  }

  /**
   * Ends this process in favour of its standby, which has everything, as at any death. Requests under way are repeated there.
   */
  handOver(): void {
    tellKeeper('handsOver');
    process.kill(process.pid, 'SIGKILL');
  }

  #standByAfter(ms: number): void {
    if (this.#request.options.standby === 'on') this.#cancelStandby = systemClock.after(ms, () => void this.#standBy());
  }

  async #standBy(): Promise<void> {
    try {
      await this.#line.prepare(null, STANDBY_MS_MAX);
      this.#hasStandby = true;
    } catch (err) {
      this.#log.info({ err }, 'no standby');
      this.#standByAfter(RETRY_AFTER_MS);
    }
  }

  #standbyLost(): void {
    this.#hasStandby = false;
    this.#log.info('the standby has ended');
    this.#standByAfter(STANDBY_AFTER_MS);
  }

  status(): Pick<Status, 'continuity'> {
    if (this.#keeper === null) return {};
    const { generation, upgrades } = this.#keeper;
    const restarts = {
      deaths: generation - upgrades,
      upgrades,
      lastPauseMs: this.#pauseMs,
      hasStandby: this.#hasStandby,
      requests: this.#requests,
    };
    return { continuity: { ...restarts, layout: LAYOUTS.handover } };
  }
}
