import { programVersion } from '../../src/base/program-version.ts';
import type { Status } from '../../src/control/status-model.ts';

/** What a mount says of itself while nothing happens in it. */
export function idleStatus(changes: Partial<Status> = {}): Status {
  return {
    schema: 1,
    directory: '/home/ann/Cloud',
    account: { origin: 'http://127.0.0.1:1', username: 'ann@example.com' },
    pid: process.pid,
    version: programVersion(),
    startedMs: 1,
    phase: 'running',
    connection: { state: 'online', sinceMs: 1, reason: null },
    pending: { count: 0, bytes: 0, changes: [] },
    parked: [],
    held: [],
    localFolders: [],
    pinned: [],
    transfers: [],
    cache: { usedBytes: 0, limitBytes: 0, unsyncedBytes: 0 },
    quota: null,
    ...changes,
  };
}
