/** How far the readers of an open file have read. */
export class ReadProgress {
  readonly #inside = new Set<object>();
  readonly #finished = new Set<object>();
  #count = 0;

  /** Reads so far. */
  get count(): number {
    return this.#count;
  }

  /**
   * Whether all readers have reached the end, as far as their reads arrive here. Reads from the kernel's page cache do not. A single reader
   * without a read counts as finished, then; one of several does not.
   *
   * @param users the number of open descriptors
   */
  isOverFor(users: number): boolean {
    return this.#inside.size === 0 && (users === 1 || this.#finished.size === users);
  }

  /** @param reader one open(2), identified by its object */
  noted(reader: object, end: number, sizeBytes: number): void {
    this.#count++;
    if (end >= sizeBytes) {
      this.#finished.add(reader);
      this.#inside.delete(reader);
    } else if (!this.#finished.has(reader)) {
      this.#inside.add(reader);
    }
  }

  /** The reader closed the file. */
  left(reader: object): void {
    this.#inside.delete(reader);
    this.#finished.delete(reader);
  }

  /** Reset: the readers now read another version. */
  restart(): void {
    this.#inside.clear();
    this.#finished.clear();
  }
}
