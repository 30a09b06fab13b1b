import type { ParkReason } from '../store/tables.ts';

/** The reasons in words; docs/troubleshooting.md lists the cures under the same words. */
const MEANINGS: Readonly<Record<ParkReason, string>> = {
  quota: 'the account has no storage left for it',
  forbidden: 'the account may not write there',
  'name-refused': 'the service rejects the name',
  'not-found': 'its folder no longer exists on the service',
  conflict: 'the service has another item in its place',
  'base-lost': 'only a part of a large file was changed here, and the version it is based on is gone',
  'local-damage': 'the disk returned other bytes than were written',
  refused: 'the service gives another reason',
};

/**
 * `quota: the account has no storage left for it (PUT …: 413 Storage limit exceeded)`: the word to look up, its meaning, and the
 * response for a report.
 */
export function parkReasonText(reason: ParkReason, detail: string): string {
  return `${reason}: ${MEANINGS[reason]} (${detail})`;
}
