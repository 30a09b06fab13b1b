import type { Clock } from '../base/clock.ts';
import type { Accounts } from './accounts.ts';
import type { Blobs } from './blobs.ts';
import type { Database } from './database.ts';
import type { Histories } from './histories.ts';
import type { ObjectMover } from './object-mover.ts';
import type { Repository } from './repository.ts';
import type { Sealer } from './sealer.ts';
import type { Uploads } from './uploads.ts';

/** The parts of a server that work without listening: also used by administration and checks beside a running server. */
export interface Parts {
  readonly database: Database;
  readonly clock: Clock;
  readonly accounts: Accounts;
  readonly repository: Repository;
  readonly histories: Histories;
  readonly blobs: Blobs;
  readonly sealer: Sealer;
  readonly uploads: Uploads;
  /** Null without an object store. */
  readonly mover: ObjectMover | null;
}
