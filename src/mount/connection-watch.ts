import type { Clock } from '../base/clock.ts';
import type { MountEvent } from '../control/event-model.ts';
import type { ConnectionStatus } from '../control/status-model.ts';
import type { RemoteService } from '../remote/contract.ts';
import type { Connectivity } from '../transfer/connectivity.ts';
import type { MountService } from './mount-seam.ts';
import { outageReason } from './outage-reason.ts';
import type { ServiceRoute } from './service-route.ts';
import type { SignInWatch } from './sign-in-watch.ts';

export interface ConnectionWatchDeps {
  readonly service: Pick<RemoteService, 'signInRequired'>;
  readonly connectivity: Pick<Connectivity, 'state' | 'onChange'>;
  readonly route: Pick<ServiceRoute, 'proxy'>;
  readonly signIns: Pick<SignInWatch, 'start' | 'stop'>;
  readonly mount: Pick<MountService, 'reachable' | 'unreachable'>;
  readonly onEvent: (event: MountEvent) => void;
  /** Something happened that may change the status. */
  readonly onChange: () => void;
  readonly clock: Clock;
}

/** The state of the connection to the service, for users as events and for the Worker as calls. */
export class ConnectionWatch {
  readonly #deps: ConnectionWatchDeps;
  #status: ConnectionStatus;
  #doesReport = false;

  constructor(deps: ConnectionWatchDeps) {
    this.#deps = deps;
    this.#status = { state: 'connecting', sinceMs: deps.clock.nowMs(), reason: null };
    deps.connectivity.onChange(({ online }) => this.#changed(online === true));
  }

  /** A later failure may be more specific than the first one of the outage. */
  get status(): ConnectionStatus {
    if (this.#status.state !== 'offline') return this.#status;
    return { ...this.#status, reason: this.#outageReason() };
  }

  /** From now on changes become events: that of the mount shows the first state. */
  report(): void {
    this.#doesReport = true;
  }

  signInRequired(): void {
    const { signIns, clock, onEvent } = this.#deps;
    signIns.start();
    if (this.#status.state === 'sign-in-needed') return;
    this.#status = {
      state: 'sign-in-needed',
      sinceMs: clock.nowMs(),
      reason: 'the service refuses the saved sign-in',
    };
    onEvent({ type: 'sign-in-needed' });
  }

  signedIn(): void {
    this.#deps.signIns.stop();
    this.#changed(true);
  }

  #changed(online: boolean): void {
    const { service, mount, clock, onChange, onEvent } = this.#deps;
    onChange();
    const was = this.#status;
    if (was.state === (online ? 'online' : 'offline') || (!online && was.state === 'sign-in-needed')) return;
    if (online && service.signInRequired) {
      this.signInRequired();
      return;
    }
    const nowMs = clock.nowMs();
    const reason = online ? null : this.#outageReason();
    this.#status = { state: online ? 'online' : 'offline', sinceMs: nowMs, reason };
    if (online) void mount.reachable().catch(() => {});
    else void mount.unreachable().catch(() => {});
    if (!this.#doesReport || (online && was.state === 'connecting')) return;
    if (online) onEvent({ type: 'online', offlineMs: nowMs - was.sinceMs });
    else onEvent({ type: 'offline', reason: reason ?? '' });
  }

  #outageReason(): string {
    return outageReason(this.#deps.connectivity.state.failure, this.#deps.route);
  }
}
