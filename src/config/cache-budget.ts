import type { Options } from './options.ts';

const GIB = 1024 ** 3;

/**
 * What `--cache-size` and `--cache-reserve` mean on a given disk.
 *
 * @param disk of the store's file system, in bytes: `freeBytes` for us (statfs f_bavail) and `totalBytes`.
 */
export function cacheBudget(
  options: Pick<Options, 'cacheBytes' | 'cacheReserveBytes'>,
  disk: { readonly freeBytes: number; readonly totalBytes: number },
): { readonly cacheBytes: number; readonly reserveBytes: number } {
  return {
    cacheBytes: options.cacheBytes ?? Math.min(20 * GIB, Math.floor(disk.freeBytes / 10)),
    reserveBytes: options.cacheReserveBytes ?? Math.min(GIB, Math.floor(disk.totalBytes / 20)),
  };
}
