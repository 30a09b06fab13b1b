/** What `--cache-size` leaves to each kind of what can be fetched again, bytes. */
export interface CacheShares {
  /** Disk space of content files. */
  readonly files: number;
  /** Space of small contents within LMDB's file. */
  readonly small: number;
}

/**
 * Divides `--cache-size`, which counts content files and LMDB's file. The latter holds names and small contents and never gets
 * smaller: what it takes is not there for content files, but half of the whole always is, or a long list of names would let nothing
 * be kept at all. For the same reason small contents get no more than half: what they make LMDB's file to be is lost to the others.
 */
export function sharesOf(limitBytes: number, indexBytes: number): CacheShares {
  const half = Math.floor(limitBytes / 2);
  return { files: Math.max(limitBytes - indexBytes, half), small: half };
}
