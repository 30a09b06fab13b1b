import type { EventRecord } from '../control/event-model.ts';
import type { Status, Transfer } from '../control/status-model.ts';
import type { Sample } from './throughput.ts';

/** An account as the page shows it. */
export interface LiveAccount {
  /** The account's name, for calls. */
  readonly name: string;
  readonly username: string;
  readonly origin: string;
  /** `silent`: the mount does not answer. `foreign`: it belongs to another user. */
  readonly mount: 'none' | 'running' | 'silent' | 'foreign';
  /** null unless the mount runs. */
  readonly status: Status | null;
  readonly transfers: readonly Transfer[];
  /** Oldest first. */
  readonly events: readonly EventRecord[];
  readonly samples: readonly Sample[];
}

/** One line of the live stream. The first has everything; each later one replaces fields of an account, or adds to them. */
export type LiveMessage =
  | { readonly type: 'all'; readonly version: string; readonly home: string; readonly accounts: readonly LiveAccount[] }
  | { readonly type: 'change'; readonly name: string; readonly changed: Partial<LiveAccount> }
  | { readonly type: 'status'; readonly name: string; readonly changed: Partial<Status> }
  | { readonly type: 'event'; readonly name: string; readonly record: EventRecord }
  | { readonly type: 'sample'; readonly name: string; readonly sample: Sample }
  /** The connection is alive. */
  | { readonly type: 'beat' };

/** The events that are kept for each account, as many as a mount keeps. */
export const EVENTS_MAX = 1_000;
