import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ServiceHealth } from '../base/service-health.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { ContentStore } from '../bytes/content-store.ts';
import type { Options } from '../config/options.ts';
import type { BlockReader } from '../content/block-reader.ts';
import type { RequestRetry } from '../content/request-retry.ts';
import type { VersionHistory, VersionSource } from '../content/version-source.ts';
import type { PinnedPath } from '../control/status-model.ts';
import { CloudAttributes, type PublicLinks, type Thumbnails } from '../fs/cloud-attributes.ts';
import { ComposedFileSystem } from '../fs/composed-file-system.ts';
import { FileHistory } from '../fs/file-history.ts';
import type { FileSystem } from '../fs/file-system.ts';
import type { PinnedSet, PinState } from '../fs/pinned-set.ts';
import { Pins } from '../fs/pins.ts';
import { RefusedReads } from '../fs/refused-reads.ts';
import { type ThumbnailCache, ThumbnailsAhead } from '../fs/thumbnails-ahead.ts';
import { TrashBridge } from '../fs/trash-bridge.ts';
import { VersionsDirectory } from '../fs/versions-directory.ts';
import type { Store } from '../store/environment.ts';
import { pathOf } from '../sync/sync-event.ts';
import type { AccountPlaces } from '../tree/account-places.ts';
import type { Freshness } from '../tree/freshness.ts';
import type { NodeChanges } from '../tree/node-changes.ts';
import type { Tree } from '../tree/tree.ts';

export interface AdditionsDeps {
  readonly store: Store;
  readonly contents: ContentStore;
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly fileSystem: FileSystem;
  readonly reader: BlockReader;
  readonly source: VersionSource & VersionHistory;
  readonly links: PublicLinks;
  readonly thumbnails: Thumbnails;
  /** null: this mount serves no desktop. */
  readonly thumbnailCache: ThumbnailCache | null;
  readonly retry: RequestRetry;
  readonly health: ServiceHealth;
  readonly places: AccountPlaces | null;
  /** The user who mounted. */
  readonly owner: { readonly uid: number; readonly gid: number };
  readonly changes: NodeChanges;
  readonly pinned: PinnedSet;
  readonly stateOf: (ino: Inode) => string | Promise<string>;
  readonly onPin: (state: PinState) => void;
  readonly clock: Clock;
  readonly log: Logger;
  readonly shutdown: AbortSignal;
  readonly options: Pick<Options, 'dirTtlMs' | 'showVersions' | 'deletion'>;
}

/** The additions of a mount to the user's files: `.versions/`, `user.cfs.*`, the places of an account, and the pins. */
export function withAdditions(parts: AdditionsDeps): { readonly mounted: ComposedFileSystem; readonly pins: Pins } {
  const { fileSystem, options, clock, source, retry } = parts;
  const pins = new Pins({ ...parts, files: fileSystem.files, roundMs: Math.max(1_000, 2 * options.dirTtlMs) });
  parts.health.onReachable(() => pins.reachable());
  const desktop = desktopParts(parts);
  const mounted = new ComposedFileSystem({
    files: fileSystem,
    versions: new VersionsDirectory({ ...parts, history: new FileHistory({ source, retry, clock }) }),
    attributes: new CloudAttributes({ ...parts, desktop, pins: parts.pinned }),
    tree: parts.tree,
    places: parts.places,
    showVersions: options.showVersions,
    refused: desktop?.refused ?? null,
    trash: options.deletion === 'trash' ? new TrashBridge({ ...parts, files: fileSystem }) : null,
  });
  return { mounted, pins };
}

function desktopParts(parts: AdditionsDeps): { ahead: ThumbnailsAhead; refused: RefusedReads } | null {
  const { thumbnails, thumbnailCache: cache } = parts;
  if (cache === null) return null;
  const refused = new RefusedReads({ ...parts, cache });
  parts.health.onReachable(() => refused.answered());
  const ahead = new ThumbnailsAhead({
    ...parts,
    cache,
    fetch: (picture, signal) => thumbnails.thumbnail(picture, signal),
  });
  return { ahead, refused };
}

/** A pin as `cfs` shows it. */
export function pinnedPath(store: Store, { ino, ...state }: PinState): PinnedPath {
  return { path: pathOf(store, ino), ...state };
}
