/** How far those who have a file open have come in it. */
export class ReadProgress {
  readonly #inside = new Set<object>();
  readonly #finished = new Set<object>();
  #count = 0;

  /** Reads so far. */
  get count(): number {
    return this.#count;
  }

  /**
   * Whether all of them have come to the end. Who reads what the kernel has already is not seen here: that may be one who has it open
   * alone, not one of several.
   */
  isOverFor(users: number): boolean {
    return this.#inside.size === 0 && (users === 1 || this.#finished.size === users);
  }

  /** @param reader one open(2), known again by its object */
  noted(reader: object, end: number, sizeBytes: number): void {
    this.#count++;
    if (end >= sizeBytes) {
      this.#finished.add(reader);
      this.#inside.delete(reader);
    } else if (!this.#finished.has(reader)) {
      this.#inside.add(reader);
    }
  }

  /** It is closed. */
  left(reader: object): void {
    this.#inside.delete(reader);
    this.#finished.delete(reader);
  }

  /** They have another file before them. */
  restart(): void {
    this.#inside.clear();
    this.#finished.clear();
  }
}
