import type { Clock } from '../base/clock.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { callControl, NoMountError } from '../control/client.ts';
import type { EventRecord, WatchMessage } from '../control/event-model.ts';
import type { Status, Transfer } from '../control/status-model.ts';
import { EVENTS_MAX, type LiveAccount, type LiveMessage } from './live-model.ts';
import { Throughput } from './throughput.ts';

/** How often a socket without a mount is tried again. */
const RETRY_MS = 1_000;
const SAMPLE_EVERY_MS = 5_000;
/** Counting 100,000 pending changes takes long: at most this share of the time goes into it. */
const SAMPLE_SHARE_MAX = 1 / 50;
/** Limit for the answer of a mount. */
const ANSWER_MS_MAX = 10_000;

export interface LiveMountDeps {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly send: (message: LiveMessage) => void;
}

/** Follows one account by the `watch` call of its mount, whenever a mount runs. */
export class LiveMount {
  readonly name: string;
  readonly #deps: LiveMountDeps;
  readonly #of: { readonly username: string; readonly origin: string };
  readonly #throughput = new Throughput();
  #mount: LiveAccount['mount'] = 'none';
  #status: Status | null = null;
  #transfers: readonly Transfer[] = [];
  #events: EventRecord[] = [];

  constructor(deps: LiveMountDeps, name: string, of: { readonly username: string; readonly origin: string }) {
    this.#deps = deps;
    this.name = name;
    this.#of = of;
  }

  get account(): LiveAccount {
    return {
      name: this.name,
      ...this.#of,
      mount: this.#mount,
      status: this.#status,
      transfers: this.#transfers,
      events: this.#events,
      samples: this.#throughput.samples,
    };
  }

  /** Until the signal aborts. */
  async follow(signal: AbortSignal): Promise<void> {
    const { socketPath, bootSocketPath } = accountPaths(this.#deps.paths, this.name);
    while (!signal.aborted) {
      let mount: LiveAccount['mount'] = 'none';
      for (const path of new Set([socketPath, bootSocketPath])) {
        const ended = await this.#watch(path, signal);
        if (ended !== 'none') mount = ended;
      }
      this.#set({ mount, status: null, transfers: [] });
      await this.#deps.clock.sleep(RETRY_MS, signal).catch(() => {});
    }
  }

  /** Reads the stream of a mount to its end. @returns the state of the mount afterwards */
  async #watch(socketPath: string, signal: AbortSignal): Promise<LiveAccount['mount']> {
    const done = new AbortController();
    const both = AbortSignal.any([signal, done.signal]);
    const since = this.#events.at(-1)?.seq ?? null;
    const sampling = this.#sample(socketPath, both);
    try {
      const params = { since, follow: true, status: true };
      await callControl(socketPath, 'watch', params, { signal: both, onProgress: (message) => this.#take(message) });
      return 'none';
    } catch (error) {
      if (!(error instanceof NoMountError)) return signal.aborted ? 'none' : 'silent';
      return error.code === 'EACCES' ? 'foreign' : 'none';
    } finally {
      done.abort();
      await sampling;
    }
  }

  #take(message: WatchMessage): void {
    const { send } = this.#deps;
    if (message.type === 'event') {
      const { type: _, ...record } = message;
      this.#events = [...this.#events.slice(1 - EVENTS_MAX), record];
      send({ type: 'event', name: this.name, record });
    } else if (message.type === 'transfers') this.#set({ transfers: message.transfers });
    else {
      const isFirst = this.#status === null;
      this.#status = { ...this.#status, transfers: [], ...message.changed } as Status;
      if (isFirst) this.#set({ mount: 'running', status: this.#status }, true);
      else send({ type: 'status', name: this.name, changed: message.changed });
    }
  }

  /** Reads the counters of the mount from time to time. A mount that does not answer is shown as silent. */
  async #sample(socketPath: string, signal: AbortSignal): Promise<void> {
    const { clock, send } = this.#deps;
    while (!signal.aborted) {
      const startedMs = clock.elapsedMs();
      const inTime = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS_MAX)]);
      try {
        const { bytes } = await callControl(socketPath, 'metrics', {}, { signal: inTime });
        const sample = { atMs: clock.nowMs(), pushed: bytes.pushed, fetched: bytes.fetched };
        this.#throughput.add(sample);
        send({ type: 'sample', name: this.name, sample });
        if (this.#status !== null) this.#set({ mount: 'running' });
      } catch (error) {
        if (!signal.aborted && !(error instanceof NoMountError)) this.#set({ mount: 'silent' });
      }
      const pauseMs = Math.max(SAMPLE_EVERY_MS, (clock.elapsedMs() - startedMs) / SAMPLE_SHARE_MAX);
      await clock.sleep(pauseMs, signal).catch(() => {});
    }
  }

  /** Takes over the fields, and sends those that changed. */
  #set(fields: Partial<Pick<LiveAccount, 'mount' | 'status' | 'transfers'>>, isForced = false): void {
    const { mount = this.#mount, status = this.#status, transfers = this.#transfers } = fields;
    const isSame = mount === this.#mount && status === this.#status && isSameList(transfers, this.#transfers);
    this.#mount = mount;
    this.#status = status;
    this.#transfers = transfers;
    if (!isSame || isForced) this.#deps.send({ type: 'change', name: this.name, changed: fields });
  }
}

function isSameList(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one === other || (one.length === 0 && other.length === 0);
}
