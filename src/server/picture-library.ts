import { createRequire } from 'node:module';

/**
 * `sharp`, the library that scales pictures. No package of ours contains it: only `cfs serve` uses it, it has 19 MB, and its libvips is
 * under the LGPL (docs/adr/0008). The npm package, a clone and the Debian package find it in different places, so one fixed directory
 * serves all of them. Only root writes to that directory.
 */

/** The version in the printed install command: that of package.json. */
export const PICTURE_PACKAGE = 'sharp@0.35.5';
export const PICTURE_DIRECTORY = '/usr/local/lib/cfs-mount';

/** The part of sharp that is used. */
export type Sharp = (input: string | Uint8Array, options?: { limitInputPixels: number }) => SharpPicture;
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

/** The command that installs the library, for a person to run. */
export function pictureCommand(directory: string = PICTURE_DIRECTORY): string {
  return `sudo npm install --prefix ${directory} ${PICTURE_PACKAGE}`;
}

/** The library from the node_modules of this program, or from the fixed directory; null without it. */
export async function loadSharp(directory: string = PICTURE_DIRECTORY): Promise<Sharp | null> {
  // A variable, so that the compiler does not resolve the optional package.
  const name: string = 'sharp';
  try {
    return ((await import(name)) as { default: Sharp }).default;
  } catch {
    return sharpBelow(directory);
  }
}

/** Whether the library is in one of its two places; it is not loaded. */
export function isSharpInstalled(directory: string = PICTURE_DIRECTORY): boolean {
  return [import.meta.url, `${directory}/`].some((from) => {
    try {
      return createRequire(from).resolve('sharp') !== '';
    } catch {
      return false;
    }
  });
}

/** The library in `node_modules` of a directory; null without it, or if it cannot be loaded on this system. */
export function sharpBelow(directory: string): Sharp | null {
  try {
    return createRequire(`${directory}/`)('sharp') as Sharp;
  } catch {
    return null;
  }
}
