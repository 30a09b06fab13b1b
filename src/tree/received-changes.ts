import type { Inode } from '../base/vocabulary.ts';
import type { NodeChange } from './listing-merge.ts';

/** A change that was made elsewhere and is shown here now: what a person reads about it. */
export type ReceivedChange =
  | { readonly type: 'received'; readonly change: ReceivedKind; readonly at: Place; readonly count: 1 }
  /** So many entries of one folder. */
  | { readonly type: 'received'; readonly change: ReceivedKind; readonly at: Inode; readonly count: number }
  | { readonly type: 'renamed-elsewhere'; readonly from: Place; readonly to: Place };

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
  const groups = new Map<string, { readonly change: ReceivedKind; readonly places: Place[] }>();
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
    const group = groups.get(key) ?? { change, places: [] };
    groups.set(key, group);
    group.places.push(placeOf(place));
  }
  for (const { change, places } of groups.values()) {
    if (places.length > SINGLE_MAX)
      received.push({ type: 'received', change, at: (places[0] as Place).parent, count: places.length });
    else for (const at of places) received.push({ type: 'received', change, at, count: 1 });
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
