import type { Inode, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import type { Store } from '../store/environment.ts';
import { pathOf } from '../sync/sync-event.ts';

/** The path in the mount of a file or version of the service; null if it is not known. */
export function pathOfUrl(store: Store, url: string): string | null {
  const content = store.get('version', url as VersionUrl);
  const resource = content === undefined ? (url as ResourceUrl) : store.get('content', content)?.resource;
  const known = resource == null ? undefined : store.get('resource', resource);
  const ino = known ?? ownerOfUpload(store, url);
  return ino === undefined ? null : pathOf(store, ino);
}

/** A version under way belongs to no content yet: its intent names the file. */
function ownerOfUpload(store: Store, url: string): Inode | undefined {
  for (const [, { version, owner }] of store.all('intent')) if (version === url) return owner;
  return undefined;
}
