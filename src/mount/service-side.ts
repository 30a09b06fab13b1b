import type { Port } from '../base/port.ts';
import type { VersionHistory, VersionSource } from '../content/version-source.ts';
import type { PublicLinks, Thumbnails } from '../fs/cloud-attributes.ts';
import type { RemoteChanges, UploadService } from '../sync/remote-changes.ts';
import type { RemoteListing } from '../tree/remote-listing.ts';

/**
 * What the file-system side asks of the service side. `Transfer` satisfies it: across the port in a mount, directly where both
 * sides are in one thread.
 */
export interface ServiceSide {
  readonly listings: RemoteListing;
  readonly versions: VersionSource & VersionHistory;
  readonly changes: RemoteChanges;
  readonly uploads: UploadService;
  readonly links: PublicLinks;
  readonly thumbnails: Thumbnails;
}

const NAMES = [
  'listings',
  'versions',
  'changes',
  'uploads',
  'links',
  'thumbnails',
] as const satisfies readonly (keyof ServiceSide)[];

export function offerServiceSide(port: Port, side: ServiceSide): void {
  for (const name of NAMES) port.offer(name, side[name]);
}

export function remoteServiceSide(port: Port): ServiceSide {
  return {
    listings: port.remote('listings'),
    versions: port.remote('versions'),
    changes: port.remote('changes'),
    uploads: port.remote('uploads'),
    links: port.remote('links'),
    thumbnails: port.remote('thumbnails'),
  };
}
