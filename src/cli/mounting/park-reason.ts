import type { ParkReason } from '../../store/tables.ts';

/** What each reason means; the table of docs/troubleshooting.md says by the same words what helps. */
const MEANINGS: Readonly<Record<ParkReason, string>> = {
  quota: 'the account has no room for it',
  forbidden: 'the account may not write there',
  'name-refused': 'the service does not take the name',
  'not-found': 'the folder it belongs to is gone on the service',
  conflict: 'the service has something else in its place',
  'base-lost': 'only a part of a large file was changed here, and the version below it is gone',
  'local-damage': 'the disk gave other bytes than were written',
  refused: 'the service gives another reason',
};

/** `quota: the account has no room for it (PUT …: 413 Storage limit exceeded)`: to be looked up, understood, and reported. */
export function parkReasonText(reason: ParkReason, detail: string): string {
  return `${reason}: ${MEANINGS[reason]} (${detail})`;
}
