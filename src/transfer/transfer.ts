import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { RemoteReading, RemoteService } from '../remote/contract.ts';
import { ChangeService } from './change-service.ts';
import { Connectivity, type ConnectivityState } from './connectivity.ts';
import { LinkService } from './link-service.ts';
import { ListingService } from './listing-service.ts';
import { PictureService } from './picture-service.ts';
import { RateLimit } from './rate-limit.ts';
import { TransferQueue, type TransferState } from './transfer-queue.ts';
import { UploadService } from './upload-service.ts';
import { VersionService } from './version-service.ts';

/** The services that the main thread offers over the port, and their figures for `cfs status`. */
export interface Transfer {
  readonly listings: ListingService;
  readonly versions: VersionService;
  readonly changes: ChangeService;
  readonly uploads: UploadService;
  readonly links: LinkService;
  readonly thumbnails: PictureService;
  readonly connectivity: Connectivity;
  /** The limit for sent bodies. Its rate may be changed. */
  readonly upLimit: RateLimit;
  /** The limit for received bodies. A range whose request began without a limit ends without one. */
  readonly downLimit: RateLimit;
  stats(): TransferStats;
}

export interface TransferStats extends ConnectivityState {
  readonly signInRequired: boolean;
  readonly running: readonly TransferState[];
  readonly waiting: number;
  readonly bytesDownloaded: number;
  readonly bytesUploaded: number;
}

/**
 * The service side of the port: transfers bytes between the service and local files. The services implement `RemoteListing`, `VersionSource`,
 * `RemoteChanges`, `UploadService` and `PublicLinks` structurally; the mount's assembly checks that.
 */
export function createTransfer(options: {
  service: RemoteService;
  /** The source of listings and versions: the service itself, unless the whole account is mounted. */
  reading?: RemoteReading;
  clock: Clock;
  log: Logger;
  /** Parallel transfers, at most the data connections of the service; 8. */
  transfers?: number;
  /** Parallel uploads among them. */
  uploads?: number;
  /** Bytes of bodies per second in each direction; null or absent: no limit. */
  limits?: { readonly upBytesPerSecond: number | null; readonly downBytesPerSecond: number | null };
}): Transfer {
  const { service, clock, log } = options;
  const connectivity = new Connectivity({ clock, log, probe: (signal) => service.user(signal) });
  const queue = new TransferQueue({
    clock,
    ...(options.transfers === undefined ? {} : { transfers: options.transfers }),
    ...(options.uploads === undefined ? {} : { uploads: options.uploads }),
  });
  const upLimit = new RateLimit({ clock, bytesPerSecond: options.limits?.upBytesPerSecond ?? null });
  const downLimit = new RateLimit({ clock, bytesPerSecond: options.limits?.downBytesPerSecond ?? null });
  const parts = {
    service,
    reading: options.reading ?? service,
    connectivity,
    queue,
    clock,
    upLimit,
    downLimit,
  };
  return {
    listings: new ListingService(parts),
    versions: new VersionService(parts),
    changes: new ChangeService(parts),
    uploads: new UploadService(parts),
    links: new LinkService(parts),
    thumbnails: new PictureService(parts),
    connectivity,
    upLimit,
    downLimit,
    stats: () => ({
      ...connectivity.state,
      signInRequired: service.signInRequired,
      running: queue.running,
      waiting: queue.waiting,
      bytesDownloaded: queue.bytesMoved.downloaded,
      bytesUploaded: queue.bytesMoved.uploaded,
    }),
  };
}
