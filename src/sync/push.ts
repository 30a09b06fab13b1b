import type { Inode } from '../base/vocabulary.ts';
import type { Intent } from '../store/intents.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { Action } from './plan.ts';

/** One step that the service takes part in, from when it may begin to its end. */
export interface Push {
  readonly action: Action;
  /** Whom the plan was asked about: the step may be about another node, in its way. */
  readonly asker: Inode;
  readonly weight: 'small' | 'large';
  /** Of `elapsedMs`. */
  readonly startedMs: number;
  /** What is known of the step's node: as long as it is the same, nothing came of the push. */
  readonly before: { readonly node: NodeRecord | undefined; readonly intent: Intent | undefined };
}

/** Who keeps others, or itself, from being pushed. */
export interface Blocker {
  readonly ino: Inode;
  readonly why: 'open' | 'parked';
}
