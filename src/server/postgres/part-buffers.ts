/**
 * The buffers in memory for parts that arrive quickly, each for one part. One account holds at most a quarter of them, so what one
 * account sends leaves buffers for others. A buffer is made when it is first needed, and reused.
 */
export class PartBuffers {
  readonly #count: number;
  readonly #bufferBytes: number;
  readonly #free: Buffer[] = [];
  readonly #heldBy = new Map<string, number>();
  #held = 0;

  constructor(limits: { readonly count: number; readonly bufferBytes: number }) {
    this.#count = limits.count;
    this.#bufferBytes = limits.bufferBytes;
  }

  /** A buffer for a part of the account; null if none is free, or the account holds a quarter of all. */
  take(uid: string): PartBuffer | null {
    const heldBy = this.#heldBy.get(uid) ?? 0;
    if (this.#held >= this.#count || heldBy >= Math.max(1, this.#count / 4)) return null;
    this.#held += 1;
    this.#heldBy.set(uid, heldBy + 1);
    const bytes = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#bufferBytes);
    return { bytes, giveBack: () => this.#giveBack(uid, bytes) };
  }

  #giveBack(uid: string, buffer: Buffer): void {
    this.#free.push(buffer);
    this.#held -= 1;
    const heldBy = (this.#heldBy.get(uid) ?? 0) - 1;
    if (heldBy > 0) this.#heldBy.set(uid, heldBy);
    else this.#heldBy.delete(uid);
  }
}

export interface PartBuffer {
  readonly bytes: Buffer;
  /** Call once. */
  readonly giveBack: () => void;
}
