/** The share of `--cache-size` for each kind of cached content, bytes. */
export interface CacheShares {
  /** Disk space of content files. */
  readonly files: number;
  /** Space of small contents within LMDB's file. */
  readonly small: number;
}

/**
 * Divides `--cache-size`, which counts content files and LMDB's file. LMDB's file holds names and small contents and never
 * shrinks. Content files get the rest, but at least half of the whole: otherwise a long list of names would leave no cache.
 * Small contents get at most half, because the growth of LMDB's file is permanently lost to content files.
 */
export function sharesOf(limitBytes: number, indexBytes: number): CacheShares {
  const half = Math.floor(limitBytes / 2);
  return { files: Math.max(limitBytes - indexBytes, half), small: half };
}
