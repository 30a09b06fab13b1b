/** Bytes sent and fetched since the start of a mount, at one time. */
export interface Sample {
  readonly atMs: number;
  readonly pushed: number;
  readonly fetched: number;
}

/** Fine samples cover the plot of ten minutes, coarse ones that of a day. */
const FINE_MS = 10 * 60_000;
const COARSE_EVERY_MS = 5 * 60_000;
const DAY_MS = 24 * 3_600_000;

/** The samples of a mount: all of the last ten minutes, and one for each five minutes of a day. */
export class Throughput {
  #samples: Sample[] = [];

  get samples(): readonly Sample[] {
    return this.#samples;
  }

  add(sample: Sample): void {
    const kept: Sample[] = [];
    for (const old of this.#samples) {
      const ageMs = sample.atMs - old.atMs;
      const slot = Math.floor(old.atMs / COARSE_EVERY_MS);
      const isFirstOfSlot = kept.length === 0 || Math.floor((kept.at(-1)?.atMs ?? 0) / COARSE_EVERY_MS) !== slot;
      if (ageMs <= FINE_MS || (ageMs <= DAY_MS && isFirstOfSlot)) kept.push(old);
    }
    kept.push(sample);
    this.#samples = kept;
  }
}
