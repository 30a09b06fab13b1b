import { ApiError } from '../base/errors.ts';
import type { ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import type { Pictures } from '../remote/contract.ts';
import type { Connectivity } from './connectivity.ts';

/** Longer side of a thumbnail, pixels: the `large` size of the freedesktop thumbnail specification. */
const SIDE_PIXELS = 256;
/** Largest value of an extended attribute (XATTR_SIZE_MAX in linux/limits.h). */
const BYTES_MAX = 64 * 1024;

/** Small forms of pictures (`Thumbnails`), across the threads. */
export class PictureService {
  readonly #pictures: Pictures | null;
  readonly #connectivity: Connectivity;

  constructor(options: { service: { readonly pictures: Pictures | null }; connectivity: Connectivity }) {
    this.#pictures = options.service.pictures;
    this.#connectivity = options.connectivity;
  }

  /** A JPEG of at most 64 KiB; null if the service makes none of this file. */
  async thumbnail(picture: ResourceUrl | VersionUrl, signal: AbortSignal): Promise<Uint8Array | null> {
    const pictures = this.#pictures;
    if (pictures === null) return null;
    try {
      return await this.#connectivity.watched(() => received(pictures, picture, signal));
    } catch (error) {
      if (error instanceof ApiError && error.status === 406) return null;
      throw error;
    }
  }
}

async function received(
  pictures: Pictures,
  picture: ResourceUrl | VersionUrl,
  signal: AbortSignal,
): Promise<Uint8Array | null> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const form = { widthMax: SIDE_PIXELS, heightMax: SIDE_PIXELS };
  for await (const chunk of await pictures.transcodedImage(picture, form, signal)) {
    size += chunk.length;
    if (size > BYTES_MAX) return null;
    chunks.push(chunk);
  }
  return size === 0 ? null : Buffer.concat(chunks);
}
