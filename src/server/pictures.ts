import type { ImageDocument } from '../protocol/messages.ts';
import { loadSharp, type Sharp } from './picture-library.ts';
import { Refusal } from './refusal.ts';
import { Turns, type Waiter } from './turns.ts';

/** A requested image size (docs/service.md 6.6), from the Accept header of a data request. */
export interface PictureRequest {
  readonly widthMax: number;
  readonly heightMax: number;
  readonly isSquare: boolean;
  /** Clockwise. */
  readonly quarterTurns: number;
}

/**
 * `image/jpeg; pxmax=<w>; pymax=<h>; sq=(<0|1>); r=(<n>)`, with optional parentheses.
 * @returns null if the data are requested unchanged @throws Refusal 406 for an invalid size
 */
export function pictureRequest(accept: string | undefined): PictureRequest | null {
  const [type = '', ...parameters] = (accept ?? '').split(';').map((part) => part.trim().toLowerCase());
  const values = new Map(parameters.filter((part) => part !== '').map(parameterOf));
  if (!['pxmax', 'pymax', 'sq', 'r'].some((name) => values.has(name))) return null;
  const [widthMax, heightMax] = [values.get('pxmax') ?? 0, values.get('pymax') ?? 0];
  const isFitting = (pixels: number): boolean => pixels >= 1 && pixels <= SIDE_PIXELS_MAX;
  const [square, quarterTurns] = [values.get('sq') ?? 0, values.get('r') ?? 0];
  if (type !== 'image/jpeg' || !isFitting(widthMax) || !isFitting(heightMax)) throw notAcceptable();
  if (!(square === 0 || square === 1) || Number.isNaN(quarterTurns)) throw notAcceptable();
  return { widthMax, heightMax, isSquare: square === 1, quarterTurns: quarterTurns % 4 };
}

/**
 * Scales images with `sharp`, if it is installed (`picture-library`). Responds 406 without it, and for data that are not a JPEG image.
 */
export class Pictures {
  #sharp: Promise<Sharp | null> | null = null;
  /** A picture takes seconds of processor and hundreds of MiB. */
  readonly #scaling = new Turns({ atOnceMax: 1, waitingMax: SCALING_WAITING_MAX, perPartyMax: SCALING_PER_PARTY_MAX });

  /**
   * @param source called in turn: path or bytes
   * @param requester accounts take turns
   * @param mediaType the type given at creation: only `image/jpeg` is scaled (docs/service.md 6.6)
   */
  async scaled(
    source: () => Promise<string | Uint8Array>,
    mediaType: string,
    request: PictureRequest,
    requester: Waiter,
  ): Promise<Uint8Array> {
    const sharp = await this.#library();
    if (sharp === null || !/^image\/jpe?g\b/i.test(mediaType)) throw notAcceptable();
    const { isSquare, quarterTurns, widthMax, heightMax } = request;
    const side = Math.min(widthMax, heightMax);
    // ASSUMED (docs/service.md 6.6): images are never enlarged; a square is cut from the middle.
    const scaled = async (): Promise<Uint8Array> =>
      sharp(await source(), { limitInputPixels: SCALED_PIXELS_MAX })
        .autoOrient()
        .rotate(90 * quarterTurns)
        .resize({
          width: isSquare ? side : widthMax,
          height: isSquare ? side : heightMax,
          fit: isSquare ? 'cover' : 'inside',
          withoutEnlargement: true,
        })
        .jpeg()
        .toBuffer();
    try {
      return await this.#scaling.inTurn(scaled, requester);
    } catch (error) {
      if (error instanceof Refusal) throw error;
      throw new Refusal(406, 'Not acceptable', {}, { cause: error });
    }
  }

  /**
   * Image properties from the first bytes; null for a file that is not an image, or is damaged.
   * @param source path or bytes, of which the first few are enough
   */
  async image(source: () => Promise<string | Uint8Array>, mediaType: string): Promise<ImageDocument | null> {
    if (!MEASURED.test(mediaType)) return null;
    const sharp = await this.#library();
    if (sharp === null) return null;
    try {
      const {
        width,
        height,
        orientation = 1,
      } = await sharp(await source(), { limitInputPixels: INPUT_PIXELS_MAX }).metadata();
      return { height, width, rotation: DEGREES[orientation] ?? 0 };
    } catch {
      // A file that only claims to be an image is stored unchanged.
      return null;
    }
  }

  #library(): Promise<Sharp | null> {
    this.#sharp ??= loadSharp();
    return this.#sharp;
  }
}

/** EXIF orientation as clockwise degrees; mirrored orientations are not mapped. */
const DEGREES: Readonly<Record<number, number>> = { 3: 180, 6: 90, 8: 270 };
/** Formats that can be measured by their first bytes alone; an SVG, for example, would have to be executed. */
const MEASURED = /^image\/(jpe?g|png|gif|webp)\b/i;

const SIDE_PIXELS_MAX = 10_000;
/** A small file can contain an enormous image: only its properties are read. */
const INPUT_PIXELS_MAX = 100_000_000;
/** Decoding a progressive image takes some 7 bytes per pixel, whatever the size of the result. */
const SCALED_PIXELS_MAX = 25_000_000;
const SCALING_WAITING_MAX = 64;
const SCALING_PER_PARTY_MAX = 16;

function parameterOf(part: string): [name: string, value: number] {
  const [, name = '', value = ''] = /^(\w+)\s*=\s*(?:\(\s*)?(\d{1,6})\s*\)?$/.exec(part) ?? [];
  return [name === '' ? (part.split('=', 1)[0] as string).trim() : name, value === '' ? Number.NaN : Number(value)];
}

function notAcceptable(): Refusal {
  return new Refusal(406, 'Not acceptable');
}
