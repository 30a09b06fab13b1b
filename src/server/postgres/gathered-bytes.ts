/**
 * The bytes that uploads gather for their parts, by the account that sends them. One account holds a quarter of them, and beyond that
 * little for each upload: its parts become shorter, and others keep theirs.
 */
export class GatheredBytes {
  readonly #shareBytes: number;
  readonly #partBytes: number;
  readonly #held = new Map<string, number>();

  /**
   * @param limits.bytesMax of all accounts
   * @param limits.partBytes of a part, at most
   */
  constructor(limits: { readonly bytesMax: number; readonly partBytes: number }) {
    this.#shareBytes = limits.bytesMax / 4;
    this.#partBytes = limits.partBytes;
  }

  /** The length at which the account has to store a part that has `ownBytes` now. */
  partMax(uid: string, ownBytes: number): number {
    const others = (this.#held.get(uid) ?? 0) - ownBytes;
    return Math.min(this.#partBytes, Math.max(SHORT_PART_BYTES, this.#shareBytes - others));
  }

  /** @param bytes negative when they are stored or given up */
  add(uid: string, bytes: number): void {
    const held = (this.#held.get(uid) ?? 0) + bytes;
    if (held > 0) this.#held.set(uid, held);
    else this.#held.delete(uid);
  }
}

/** Shorter parts would be too many objects. */
const SHORT_PART_BYTES = 512 * 1024;
