import type { Inode } from '../base/vocabulary.ts';
import type { Intent } from '../store/intents.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { Action } from './plan.ts';

/** One request to the service that the plan decided on, from the moment when it may begin to its end. */
export interface Push {
  readonly action: Action;
  /** The node that was planned. The action may concern another node, which is in its way. */
  readonly asker: Inode;
  readonly weight: 'small' | 'large';
  /** Of `elapsedMs`. */
  readonly startedMs: number;
  /** The state of the action's node before the push. If it is the same afterwards, the push had no effect. */
  readonly before: { readonly node: NodeRecord | undefined; readonly intent: Intent | undefined };
}

/** A node that blocks the push of others, or its own. */
export interface Blocker {
  readonly ino: Inode;
  readonly why: 'open' | 'parked';
}
