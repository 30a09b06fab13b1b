import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import type { NodeChange } from './listing-merge.ts';

/** A change that was made elsewhere and is shown here now: what a person reads about it. */
export type ReceivedChange =
  | {
      readonly type: 'received';
      readonly change: ReceivedKind;
      readonly at: Place;
      readonly count: 1;
      /** Of a deleted entry. */
      readonly url?: ResourceUrl;
    }
  /** So many entries of one folder. */
  | { readonly type: 'received'; readonly change: ReceivedKind; readonly at: Inode; readonly count: number }
  | { readonly type: 'renamed-elsewhere'; readonly from: Place; readonly to: Place };

interface Entry {
  readonly at: Place;
  readonly url?: ResourceUrl;
}

export type ReceivedKind = 'created' | 'changed' | 'deleted';

export interface Place {
  readonly parent: Inode;
  readonly name: string;
}

/** From this number on, equal changes in one folder are reported as one. */
const SINGLE_MAX = 10;

/** The differences that a listing shows, as events. A removed folder stands for its contents. */
export function receivedChanges(changes: readonly NodeChange[]): readonly ReceivedChange[] {
  const received: ReceivedChange[] = [];
  const groups = new Map<string, { readonly change: ReceivedKind; readonly entries: Entry[] }>();
  const removed = new Set(changes.filter(({ after }) => after.local === null).map(({ after }) => after.ino));
  for (const { before, after } of changes) {
    const was = before?.local ?? null;
    const is = after.local;
    if (was === is || (was !== null && is === null && removed.has(was.parent))) continue;
    const isMoved = was !== null && is !== null && (was.parent !== is.parent || was.name !== is.name);
    if (isMoved) received.push({ type: 'renamed-elsewhere', from: placeOf(was), to: placeOf(is) });
    const change = kindOf({ before, after });
    const place = is ?? was;
    if (change === null || place === null) continue;
    const key = `${change} ${place.parent}`;
    const group = groups.get(key) ?? { change, entries: [] };
    groups.set(key, group);
    const url = is === null ? before?.remote?.resource : undefined;
    group.entries.push({ at: placeOf(place), ...(url !== undefined && { url }) });
  }
  for (const { change, entries } of groups.values()) {
    if (entries.length > SINGLE_MAX)
      received.push({ type: 'received', change, at: (entries[0] as Entry).at.parent, count: entries.length });
    else for (const entry of entries) received.push({ type: 'received', change, ...entry, count: 1 });
  }
  return received;
}

/** null: no bytes of a file changed, and none appeared or went. */
function kindOf({ before, after }: NodeChange): ReceivedKind | null {
  const was = before?.local ?? null;
  const is = after.local;
  if (was === null) return is === null ? null : 'created';
  if (is === null) return 'deleted';
  if (after.kind === 'folder') return null;
  return was.content !== is.content || was.sizeBytes !== is.sizeBytes || was.mtime !== is.mtime ? 'changed' : null;
}

function placeOf({ parent, name }: Place): Place {
  return { parent, name };
}
