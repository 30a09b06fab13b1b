import type { Clock } from '../base/clock.ts';
import type { MountMetrics } from '../control/mount-metrics.ts';
import type { Status } from '../control/status-model.ts';
import type { RemoteService } from '../remote/contract.ts';
import { SCHEMA_VERSION } from '../store/schema-version.ts';
import type { Transfer } from '../transfer/transfer.ts';
import type { Account } from './account-file.ts';
import type { ConnectionWatch } from './connection-watch.ts';
import type { Continuity } from './continuity.ts';
import type { MountCommands } from './mount-seam.ts';
import { shownTransfer } from './mount-watch.ts';
import type { QuotaWatch } from './quota-watch.ts';

export interface MountReportDeps {
  readonly directory: string;
  readonly version: string;
  readonly account: Account;
  readonly commands: MountCommands;
  readonly service: Pick<RemoteService, 'requestCounts'>;
  readonly transfer: Transfer;
  readonly connection: ConnectionWatch;
  readonly quota: QuotaWatch;
  readonly continuity: Continuity | null;
  readonly phase: () => Status['phase'];
  readonly startedMs: () => number;
  readonly clock: Clock;
}

/** What a mount says of itself: the status and the metrics, put together from both threads. */
export class MountReport {
  readonly #deps: MountReportDeps;

  constructor(deps: MountReportDeps) {
    this.#deps = deps;
  }

  async metrics(): Promise<MountMetrics> {
    const { commands, service, transfer, quota, startedMs, clock } = this.#deps;
    const { running, waiting, bytesDownloaded, bytesUploaded, online } = transfer.stats();
    const { queue, ...counted } = await commands.metrics();
    return {
      uptimeMs: clock.nowMs() - startedMs(),
      isOnline: online === true,
      ...counted,
      bytes: { fetched: bytesDownloaded, pushed: bytesUploaded },
      requests: service.requestCounts,
      queue: { ...queue, transfersRunning: running.length, transfersWaiting: waiting },
      quota: quota.known,
    };
  }

  /** Reports known values and never waits for the service. */
  async status(): Promise<Status> {
    const { account, commands, transfer, connection, quota } = this.#deps;
    if (connection.status.state === 'online') quota.looked();
    const { running } = transfer.stats();
    const worker = await commands.status(running.map(({ url }) => url));
    return {
      schema: 1,
      directory: this.#deps.directory,
      account: { origin: account.origin, username: account.username },
      pid: process.pid,
      version: this.#deps.version,
      storeLayout: SCHEMA_VERSION,
      ...this.#deps.continuity?.status(),
      startedMs: this.#deps.startedMs(),
      phase: this.#deps.phase(),
      connection: connection.status,
      pending: worker.pending,
      paused: worker.paused,
      parked: worker.parked,
      local: worker.local,
      held: worker.held,
      localFolders: worker.localFolders,
      pinned: worker.pinned,
      limits: { up: transfer.upLimit.bytesPerSecond, down: transfer.downLimit.bytesPerSecond },
      transfers: running.map((transfer, index) => shownTransfer(transfer, worker.paths[index] ?? null)),
      cache: worker.cache,
      quota: quota.known,
    };
  }
}
