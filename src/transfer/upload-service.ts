import type { BodyPiece, RemoteVersion, UploadProgress } from '../base/resources.ts';
import type { ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import { missingCapability } from '../remote/capability.ts';
import type { RemoteService, Uploads } from '../remote/contract.ts';
import type { Connectivity } from './connectivity.ts';
import type { RateLimit } from './rate-limit.ts';
import type { TransferQueue } from './transfer-queue.ts';
import { bodyLength, type UploadBody, uploadBody } from './upload-body.ts';

/** The uploads that the sync needs (`UploadService`), across the threads. Bodies are read from the files that it names. */
export class UploadService {
  readonly #service: RemoteService;
  readonly #connectivity: Connectivity;
  readonly #queue: TransferQueue;
  readonly #limit: RateLimit;

  constructor(options: {
    service: RemoteService;
    connectivity: Connectivity;
    queue: TransferQueue;
    upLimit: RateLimit;
  }) {
    this.#service = options.service;
    this.#connectivity = options.connectivity;
    this.#queue = options.queue;
    this.#limit = options.upLimit;
  }

  /** @throws StorageError for a local file that is shorter than announced · what the service throws */
  putFileData(
    file: ResourceUrl,
    body: readonly BodyPiece[],
    mediaType: string,
    signal: AbortSignal,
  ): Promise<number | null> {
    return this.#sent(file, body, signal, (stream) => this.#uploads.putFileData(file, stream, mediaType, signal));
  }

  createVersion(file: ResourceUrl, signal: AbortSignal): Promise<VersionUrl> {
    return this.#connectivity.watched(() => this.#uploads.createVersion(file, signal));
  }

  /** @throws ApiError 416 when the service holds another number of bytes · as `putFileData` */
  putVersionData(
    version: VersionUrl,
    offset: number,
    body: readonly BodyPiece[],
    signal: AbortSignal,
  ): Promise<UploadProgress> {
    return this.#sent(version, body, signal, (stream) => this.#uploads.putVersionData(version, offset, stream, signal));
  }

  versionProgress(version: VersionUrl, signal: AbortSignal): Promise<UploadProgress | null> {
    return this.#connectivity.watched(() => this.#uploads.versionProgress(version, signal));
  }

  versions(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]> {
    return this.#connectivity.watched(() => this.#service.versions(file, signal));
  }

  /** @throws ApiError 405 if the service accepts no uploads; the mount is read-only then and sends none */
  get #uploads(): Uploads {
    const { uploads } = this.#service;
    if (uploads === null) throw missingCapability('upload', 'takes no uploads');
    return uploads;
  }

  #sent<T>(
    url: string,
    body: readonly BodyPiece[],
    signal: AbortSignal,
    send: (stream: UploadBody) => Promise<T>,
  ): Promise<T> {
    const transfer = { kind: 'upload', url, bytesTotal: bodyLength(body) } as const;
    return this.#queue.run(transfer, signal, (meter) =>
      this.#connectivity.watched(
        () =>
          send(
            this.#paced(
              uploadBody(body, (bytes) => meter.moved(bytes)),
              signal,
            ),
          ),
        'data',
      ),
    );
  }

  #paced(body: UploadBody, signal: AbortSignal): UploadBody {
    const limit = this.#limit;
    return { length: body.length, chunks: () => limit.paced(body.chunks(), 'later', signal) };
  }
}
