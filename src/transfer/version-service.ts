import { firstOf } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import type {
  FetchedRange,
  FetchTarget,
  NewestBytes,
  NewestVersion,
  RemoteVersion,
  WrittenExtent,
} from '../base/resources.ts';
import type { Extent, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import type { RemoteReading } from '../remote/contract.ts';
import type { Connectivity } from './connectivity.ts';
import { type Incoming, land, type Supply } from './landing.ts';
import type { RateLimit } from './rate-limit.ts';
import type { TransferQueue } from './transfer-queue.ts';

/** Interval of progress reports, even if no block is complete yet: 256 KiB take minutes on a slow connection. */
const TELL_EVERY_MS = 500;

/**
 * The versions that reading needs (`VersionSource`, `VersionHistory`), across the threads. The bytes go into the file that the other thread
 * names.
 */
export class VersionService {
  readonly #reading: RemoteReading;
  readonly #connectivity: Connectivity;
  readonly #queue: TransferQueue;
  readonly #limit: RateLimit;
  readonly #clock: Clock;

  constructor(options: {
    reading: RemoteReading;
    connectivity: Connectivity;
    queue: TransferQueue;
    downLimit: RateLimit;
    clock: Clock;
  }) {
    this.#reading = options.reading;
    this.#connectivity = options.connectivity;
    this.#queue = options.queue;
    this.#limit = options.downLimit;
    this.#clock = options.clock;
  }

  newestVersion(file: ResourceUrl, signal: AbortSignal): Promise<NewestVersion | null> {
    return this.#connectivity.watched(() => this.#reading.newestVersion(file, signal));
  }

  versionOfLength(file: ResourceUrl, sizeBytes: number, signal: AbortSignal): Promise<RemoteVersion | null> {
    return this.#connectivity.watched(() => this.#reading.versionOfLength(file, sizeBytes, signal));
  }

  /** Never limited: with `--down-limit` the bytes would be requested after the version, in the ordinary way. */
  async readNewest(
    file: ResourceUrl,
    extent: Extent,
    sizeBytes: number,
    signal: AbortSignal,
  ): Promise<NewestBytes | null> {
    if (this.#limit.bytesPerSecond !== null) return null;
    const bytesTotal = extent.end - extent.start;
    const { newest } = await this.#queue.run({ kind: 'download', url: file, bytesTotal }, signal, (meter) =>
      // In an object: null would count as a 404.
      this.#connectivity.watched(async () => {
        const newest = (await this.#reading.readNewest?.(file, extent, sizeBytes, signal)) ?? null;
        meter.moved(newest?.bytes.byteLength ?? 0);
        return { newest };
      }, 'data'),
    );
    return newest;
  }

  versions(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]> {
    return this.#connectivity.watched(() => this.#reading.versions(file, signal));
  }

  /** @throws what `RemoteReading.readVersion` throws · StorageError if the file cannot be written */
  readVersion(
    version: VersionUrl,
    extent: Extent,
    sizeBytes: number,
    target: FetchTarget,
    written: (there: WrittenExtent) => void,
    signal: AbortSignal,
  ): Promise<FetchedRange> {
    const { isAhead = false } = target;
    const transfer = { kind: 'download', url: version, bytesTotal: extent.end - extent.start, isAhead } as const;
    return this.#queue.run(transfer, signal, (meter) =>
      this.#connectivity.watched(async () => {
        const isLimited = this.#limit.bytesPerSecond !== null;
        const givenUp = new AbortController();
        const ended = firstOf([signal, givenUp.signal]);
        const ask = async (start: number): Promise<Incoming> => {
          const incoming = await this.#reading.readVersion(
            version,
            { start, end: extent.end },
            sizeBytes,
            ended.signal,
          );
          meter.expects(start - extent.start + incoming.extent.end - incoming.extent.start);
          const giveUp = () => givenUp.abort();
          if (!isLimited) return { ...incoming, giveUp };
          const chunks = this.#limit.paced(incoming.chunks, isAhead ? 'later' : 'now', ended.signal);
          return { extent: incoming.extent, chunks, giveUp };
        };
        let there: WrittenExtent = { start: extent.start, end: extent.start };
        let toldMs = this.#clock.elapsedMs();
        const tell = (now: WrittenExtent): void => {
          there = { start: now.start, end: now.end };
          toldMs = this.#clock.elapsedMs();
          written(now);
        };
        const came = (): void => {
          this.#connectivity.heard();
          if (this.#clock.elapsedMs() - toldMs >= TELL_EVERY_MS) tell(there);
        };
        const arrived = (bytes: number): void => {
          meter.moved(bytes);
          came();
        };
        // A rate limit has to see the bytes in this thread.
        const downloads = isLimited ? null : this.#reading.downloads;
        const supply: Supply = { ask };
        if (downloads !== null) {
          supply.bring = (fd, landed) =>
            downloads.bringVersion(version, extent, sizeBytes, { fd, landed, came }, signal);
        }
        try {
          return await land(supply, extent, target, arrived, tell);
        } finally {
          ended.release();
        }
      }, 'data'),
    );
  }
}
