import type { RemoteVersion } from '../base/resources.ts';
import type { VersionUrl } from '../base/vocabulary.ts';
import { mayBeVersionTimeOf, type ServiceTime } from '../store/service-time.ts';
import type { IntentRecord, RemoteFacet, StoreReader } from '../store/tables.ts';

/**
 * Resolves concurrent changes of a file: which version wins, and which one becomes a conflicted copy. Decided by
 * the file's version history, read after our version is complete, so that of several mounts exactly one makes the copy:
 *
 * | newest complete version | ours in the history | in between (newer than our base, older than ours) | reaction |
 * | --- | --- | --- | --- |
 * | ours | – | nothing | acknowledged |
 * | ours | – | versions of others | acknowledged; the newest of them becomes a conflicted copy, one only |
 * | another's | yes | – | theirs is adopted; the client that made the version right above ours saw ours, and makes the copy |
 * | another's | yes, and the one right above it was complete before | – | no client saw ours: theirs is adopted, ours becomes a conflicted copy |
 * | another's | no (the service keeps few) | – | theirs is adopted; ours becomes a conflicted copy |
 * | another's | yes | versions of others | in addition, the newest of them becomes a conflicted copy, because ours replaced it |
 *
 * A history may be in the order in which its versions were started. Their times tell which of two was complete first; if they are equal,
 * two copies are better than none.
 *
 * `under`: the newest foreign version between our base and ours.
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

/** The version over which our draft was made, as far as it is known. */
export interface KnownBase {
  readonly version: VersionUrl | null;
  readonly sizeBytes: number | null;
  readonly modified: ServiceTime | null;
}

/**
 * @param history newest first, as the service gives it
 * @param abandoned versions of ours that get no copy (`ownAmong`). One that ours was made over is its base nevertheless
 */
export function judgeHistory(
  history: readonly RemoteVersion[],
  ours: VersionUrl,
  base: KnownBase,
  abandoned: ReadonlySet<VersionUrl> = new Set(),
): Verdict {
  const complete = withoutAbandoned(history, base, abandoned);
  const newest = complete[0];
  if (newest === undefined) return { type: 'unknown' };
  const at = complete.findIndex((version) => version.url === ours);
  const before = at < 0 ? undefined : complete[at + 1];
  const under = before === undefined || isBase(before, base) ? null : before;
  if (at === 0) return { type: 'ours', version: newest, under };
  return { type: 'theirs', version: newest, oursIsKept: at > 0 && isLater(complete[at - 1], complete[at]), under };
}

/**
 * Whether nothing was added to a file since `base` but versions of abandoned uploads.
 *
 * @param history newest first, as the service gives it
 */
export function isOnlyAbandonedSince(
  history: readonly RemoteVersion[],
  base: KnownBase,
  abandoned: ReadonlySet<VersionUrl>,
): boolean {
  const [newest] = withoutAbandoned(history, base, abandoned);
  return newest === undefined ? base.sizeBytes === null : isBase(newest, base);
}

/**
 * The versions of abandoned uploads in a history: by URL, or else the newest complete version of the same length.
 *
 * @param ours the version of the present upload, which is none of them
 */
export function ownAmong(
  history: readonly RemoteVersion[],
  abandoned: Iterable<Pick<IntentRecord, 'version' | 'sizeBytes'>>,
  ours: VersionUrl | null,
): ReadonlySet<VersionUrl> {
  const own = new Set<VersionUrl>();
  for (const { version, sizeBytes } of abandoned) {
    const isIt = ({ url, complete, sizeBytes: length }: RemoteVersion): boolean =>
      version === null ? complete && length === sizeBytes && url !== ours && !own.has(url) : url === version;
    const found = history.find(isIt);
    if (found !== undefined) own.add(found.url);
  }
  return own;
}

function withoutAbandoned(
  history: readonly RemoteVersion[],
  base: KnownBase,
  abandoned: ReadonlySet<VersionUrl>,
): readonly RemoteVersion[] {
  return history.filter((version) => version.complete && (isBase(version, base) || !abandoned.has(version.url)));
}

function isLater(version: RemoteVersion | undefined, than: RemoteVersion | undefined): boolean {
  return (version?.lastModifiedMs ?? 0) > (than?.lastModifiedMs ?? Number.POSITIVE_INFINITY);
}

function isBase(version: RemoteVersion, base: KnownBase): boolean {
  if (base.version !== null) return version.url === base.version;
  // The URL is unknown: our version was sent with the file's creation, or the version was never read here. Length and time of the listing
  // identify it.
  if (base.sizeBytes !== version.sizeBytes) return false;
  return mayBeVersionTimeOf(base.modified, version.lastModifiedMs);
}

/** The base by the remote facet of a file: while its bytes are changed here, the facet is kept at what they were made over. */
export function knownOf(store: StoreReader, remote: RemoteFacet | null): KnownBase {
  const known = remote?.content == null ? undefined : store.get('content', remote.content);
  return {
    version: known?.resource === remote?.resource ? (known?.version ?? null) : null,
    sizeBytes: remote?.sizeBytes ?? null,
    modified: remote?.modified ?? null,
  };
}
