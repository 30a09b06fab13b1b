import type { FileSystemOps } from '../kernel/binding.ts';
import type { OpCalls } from '../kernel/op-calls.ts';
import type { AppleDoubles } from './apple-doubles.ts';
import type { HeldOpens } from './held-opens.ts';
import type { Nodes } from './nodes.ts';
import type { RemovedFolders } from './removed-folders.ts';
import type { RemovedWhileOpen } from './removed-while-open.ts';

/** What the procedures share. */
export interface NfsParts {
  readonly ops: FileSystemOps;
  readonly calls: OpCalls;
  readonly nodes: Nodes;
  readonly opens: HeldOpens;
  readonly removed: RemovedWhileOpen;
  readonly removedFolders: RemovedFolders;
  /** Null for a client that keeps no such files. */
  readonly doubles: AppleDoubles | null;
  readonly isReadOnly: boolean;
}
