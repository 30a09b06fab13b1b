import type { RemoteVersion } from '../base/resources.ts';
import type { ContentId, VersionUrl } from '../base/vocabulary.ts';
import { layersOf } from '../bytes/content-layers.ts';
import { ifSound } from '../store/node-table.ts';
import { mayBeTimeOf, type ServiceTime } from '../store/service-time.ts';
import type { ContentRecord, NodeRecord, RemoteFacet, StoreReader } from '../store/tables.ts';

/**
 * Who wins when a file was changed here and elsewhere between two looks, and what becomes of the other's bytes. Decided from
 * the file's version history, read after our version is complete, so that of several mounts exactly one makes the copy:
 *
 * | newest complete version | ours in the history | in between (newer than our base, older than ours) | what is done here |
 * | --- | --- | --- | --- |
 * | ours | – | nothing | acknowledged |
 * | ours | – | versions of others | acknowledged; the newest of them becomes a conflicted copy, one only |
 * | another's | yes | – | theirs is taken over; whoever made the one right above ours saw ours, and makes the copy of it |
 * | another's | yes, and the one right above it was complete before | – | nobody saw ours: theirs is taken over, ours becomes a conflicted copy |
 * | another's | no (the service keeps few) | – | theirs is taken over; ours becomes a conflicted copy |
 * | another's | yes | versions of others | besides: the newest of them becomes a conflicted copy; it was ours that went over it |
 *
 * A history may be in the order in which its versions were begun. Which of two was complete first say their times; where they do not,
 * two copies are better than none.
 *
 * `under`: the newest of what somebody else made between that which ours was made over and ours.
 */
export type Verdict =
  | { readonly type: 'ours'; readonly version: RemoteVersion; readonly under: RemoteVersion | null }
  | {
      readonly type: 'theirs';
      readonly version: RemoteVersion;
      readonly oursIsKept: boolean;
      readonly under: RemoteVersion | null;
    }
  /** The history has no complete version, not even ours. */
  | { readonly type: 'unknown' };

/** What our draft was made over, as far as we know. */
export interface KnownBase {
  readonly version: VersionUrl | null;
  readonly sizeBytes: number | null;
  readonly modified: ServiceTime | null;
}

/**
 * @param history newest first, as the service gives it
 * @param discarded of ours, of which nobody here wants a copy; one that ours was made over all the same is its base as any other
 */
export function judgeHistory(
  history: readonly RemoteVersion[],
  ours: VersionUrl,
  base: KnownBase,
  discarded: ReadonlySet<VersionUrl> = new Set(),
): Verdict {
  const complete = history.filter((version) => version.complete);
  const newest = complete[0];
  if (newest === undefined) return { type: 'unknown' };
  const at = complete.findIndex((version) => version.url === ours);
  const before =
    at < 0 ? undefined : complete.slice(at + 1).find((version) => isBase(version, base) || !discarded.has(version.url));
  const under = before === undefined || isBase(before, base) ? null : before;
  if (at === 0) return { type: 'ours', version: newest, under };
  return { type: 'theirs', version: newest, oursIsKept: at > 0 && isLater(complete[at - 1], complete[at]), under };
}

/**
 * Whether a file holds what it held when `base` was all that was known of it, apart from what was given up here since.
 *
 * @param history newest first, as the service gives it
 */
export function isOnlyDiscardedSince(
  history: readonly RemoteVersion[],
  base: KnownBase,
  discarded: ReadonlySet<VersionUrl>,
): boolean {
  const newest = history.find((version) => version.complete && (isBase(version, base) || !discarded.has(version.url)));
  return newest === undefined ? base.sizeBytes === null : isBase(newest, base);
}

function isLater(version: RemoteVersion | undefined, than: RemoteVersion | undefined): boolean {
  return (version?.lastModifiedMs ?? 0) > (than?.lastModifiedMs ?? Number.POSITIVE_INFINITY);
}

function isBase(version: RemoteVersion, base: KnownBase): boolean {
  if (base.version !== null) return version.url === base.version;
  // A version of ours whose URL we never learnt (sent with the file's creation), or one that was never read here: what the
  // listing said about it.
  if (base.sizeBytes !== version.sizeBytes) return false;
  return mayBeTimeOf(base.modified, version.lastModifiedMs);
}

/**
 * What the draft was made over: what it says itself, or else what the node's remote facet says.
 *
 * @param wasTakeOver it came with a file that took the resource over, when it was frozen; by now another may have taken it over
 */
export function baseOf(
  store: StoreReader,
  content: ContentId,
  node: NodeRecord | undefined,
  wasTakeOver: boolean,
): KnownBase {
  const remote = node?.remote ?? null;
  const under = store.get('content', content)?.base ?? null;
  // Another file's version says nothing about what this file held: neither under a draft that came to this name, nor as what
  // this file holds too, since those bytes became the other's version under its name.
  // Nor does an older version of this file, where the draft, or what it lies over, came back to a name that it had left.
  const isTakeOver = wasTakeOver || isTakenOverBy(store, remote, content);
  return knownOf(store, remote, isTakeOver ? [] : [under]);
}

/** What the remote facet says; the version is that of the first of `contents`, or of its own, that is the file's. */
export function knownOf(
  store: StoreReader,
  remote: RemoteFacet | null,
  contents: readonly (ContentId | null)[] = [],
): KnownBase {
  const of = (id: ContentId | null): ContentRecord | undefined => (id === null ? undefined : store.get('content', id));
  const own = [...contents, remote?.content ?? null].map(of).find((record) => record?.resource === remote?.resource);
  return {
    version: own?.version ?? null,
    sizeBytes: remote?.sizeBytes ?? null,
    modified: remote?.modified ?? null,
  };
}

/** Whether `content` came with the file that took the resource over, or was made over what did (`RemoteFacet.takenOverBy`). */
export function isTakenOverBy(store: StoreReader, remote: RemoteFacet | null, content: ContentId): boolean {
  const { takenOverBy } = remote ?? {};
  return (
    takenOverBy !== undefined &&
    layersOf(content, (id) => ifSound(() => store.get('content', id))).includes(takenOverBy)
  );
}
