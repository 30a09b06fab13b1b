/** What a mount's settings say about pushes. */
export interface SyncOptions {
  /** Pause after the last change before a change is pushed. */
  readonly settleMs: number;
  /** Pushes at the same time. */
  readonly transfers: number;
  /** How long a new file that replaces another one counts as a save of it. */
  readonly saveWindowMs: number;
  /** Where deleted files go. */
  readonly deletion: 'trash' | 'forever';
  /** A new file's first bytes up to this size go in one request. */
  readonly plainPutMaxBytes: number;
  /** The name of this machine, for conflicted copies. */
  readonly host: string;
}
