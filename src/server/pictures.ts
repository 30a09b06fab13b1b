import type { ImageDocument } from '../protocol/messages.ts';
import { Refusal } from './refusal.ts';

/** A picture in another size (docs/service.md 6.6): what the Accept header of a request for data asks for. */
export interface PictureRequest {
  readonly widthMax: number;
  readonly heightMax: number;
  readonly isSquare: boolean;
  /** Clockwise. */
  readonly quarterTurns: number;
}

/**
 * `image/jpeg; pxmax=<w>; pymax=<h>; sq=(<0|1>); r=(<n>)`, the parentheses being optional.
 * @returns null where data are asked for as they are @throws Refusal 406 for a size that is none
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
 * Makes pictures with `sharp`, where that is installed: an optional dependency of 19 MB that a file system does not need
 * (docs/adr/0008). Without it, and for data that are no JPEG picture: 406.
 */
export class Pictures {
  #sharp: Promise<Sharp | null> | null = null;

  /**
   * @param source path or bytes
   * @param mediaType what the file was created with: only `image/jpeg` is scaled (docs/service.md 6.6)
   */
  async scaled(source: string | Uint8Array, mediaType: string, request: PictureRequest): Promise<Uint8Array> {
    const sharp = await this.#library();
    if (sharp === null || !/^image\/jpe?g\b/i.test(mediaType)) throw notAcceptable();
    const { isSquare, quarterTurns, widthMax, heightMax } = request;
    const side = Math.min(widthMax, heightMax);
    try {
      const upright = await sharp(source, { limitInputPixels: INPUT_PIXELS_MAX }).autoOrient().toBuffer();
      const turned =
        quarterTurns === 0
          ? upright
          : await sharp(upright)
              .rotate(90 * quarterTurns)
              .toBuffer();
      // ASSUMED (docs/service.md 6.6): nothing is enlarged; a square is cut from the middle.
      return await sharp(turned)
        .resize({
          width: isSquare ? side : widthMax,
          height: isSquare ? side : heightMax,
          fit: isSquare ? 'cover' : 'inside',
          withoutEnlargement: true,
        })
        .jpeg()
        .toBuffer();
    } catch (error) {
      throw new Refusal(406, 'Not acceptable', {}, { cause: error });
    }
  }

  /**
   * What a picture is like, by its first bytes; null for a file that is none, or damaged.
   * @param source path or bytes
   */
  async image(source: string | Uint8Array, mediaType: string): Promise<ImageDocument | null> {
    if (!MEASURED.test(mediaType)) return null;
    const sharp = await this.#library();
    if (sharp === null) return null;
    try {
      const { width, height, orientation = 1 } = await sharp(source, { limitInputPixels: INPUT_PIXELS_MAX }).metadata();
      return { height, width, rotation: DEGREES[orientation] ?? 0 };
    } catch {
      // Whatever calls itself a picture is kept as it came.
      return null;
    }
  }

  #library(): Promise<Sharp | null> {
    this.#sharp ??= loadSharp();
    return this.#sharp;
  }
}

/** What a camera noted of how it was held (EXIF) as clockwise degrees; mirrored pictures are not told. */
const DEGREES: Readonly<Record<number, number>> = { 3: 180, 6: 90, 8: 270 };
/** Formats whose first bytes say it all: an SVG, say, is a program to be run. */
const MEASURED = /^image\/(jpe?g|png|gif|webp)\b/i;

const SIDE_PIXELS_MAX = 10_000;
/** A small file can hold an enormous picture. */
const INPUT_PIXELS_MAX = 100_000_000;

/** The part of sharp that is used. */
type Sharp = (input: string | Uint8Array, options?: { limitInputPixels: number }) => SharpPicture;
interface SharpPicture {
  autoOrient(): SharpPicture;
  rotate(degrees: number): SharpPicture;
  resize(options: {
    width: number;
    height: number;
    fit: 'cover' | 'inside';
    withoutEnlargement: boolean;
  }): SharpPicture;
  jpeg(): SharpPicture;
  toBuffer(): Promise<Uint8Array>;
  metadata(): Promise<{ readonly width: number; readonly height: number; readonly orientation?: number }>;
}

async function loadSharp(): Promise<Sharp | null> {
  // A name that the compiler does not follow: the package need not be there.
  const name: string = 'sharp';
  try {
    return ((await import(name)) as { default: Sharp }).default;
  } catch {
    return null;
  }
}

function parameterOf(part: string): [name: string, value: number] {
  const [, name = '', value = ''] = /^(\w+)\s*=\s*(?:\(\s*)?(\d{1,6})\s*\)?$/.exec(part) ?? [];
  return [name === '' ? (part.split('=', 1)[0] as string).trim() : name, value === '' ? Number.NaN : Number(value)];
}

function notAcceptable(): Refusal {
  return new Refusal(406, 'Not acceptable');
}
