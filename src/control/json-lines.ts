/** A line that is longer than allowed, or not JSON: the connection is out of sync and must be closed. */
export class LineError extends Error {
  override readonly name = 'LineError';
}

/** Cuts a stream of chunks into lines of JSON. Holds at most `lineBytesMax` bytes. */
export class JsonLines {
  readonly #lineBytesMax: number;
  #chunks: Uint8Array[] = [];
  #heldBytes = 0;

  constructor(options: { lineBytesMax: number }) {
    this.#lineBytesMax = options.lineBytesMax;
  }

  /** The lines that `chunk` completes. @throws LineError */
  *push(chunk: Uint8Array): Generator<unknown> {
    let rest = chunk;
    for (let end = rest.indexOf(0x0a); end >= 0; end = rest.indexOf(0x0a)) {
      this.#hold(rest.subarray(0, end));
      rest = rest.subarray(end + 1);
      // A character may lie across two chunks: bytes are joined before they become text.
      const line = Buffer.concat(this.#chunks).toString('utf8');
      this.#chunks = [];
      this.#heldBytes = 0;
      if (line.trim() !== '') yield parse(line);
    }
    if (rest.byteLength > 0) this.#hold(rest);
  }

  #hold(bytes: Uint8Array): void {
    this.#heldBytes += bytes.byteLength;
    if (this.#heldBytes > this.#lineBytesMax) throw new LineError(`a line is longer than ${this.#lineBytesMax} bytes`);
    this.#chunks.push(bytes);
  }
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new LineError('a line is not JSON', { cause: error });
  }
}
