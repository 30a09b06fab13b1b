import { createHash } from 'node:crypto';

/**
 * What the service owes at the end. A content is owed once a `close(2)`, or a request of the web client, accepted it; it stops
 * being owed only when the client that made it replaces or removes it itself. That somebody else did is no excuse: then it has
 * to be in a version or in a copy.
 *
 * No two contents are equal: each holds the number of the step that made it.
 */
export class Ledger {
  readonly #known = new Map<string, string>([[digestOf(new Uint8Array()), 'empty']]);
  readonly #owed = new Map<string, { readonly owner: string; readonly what: string }>();
  #accepted = 0;

  /** How many contents were accepted, replaced ones too. */
  get accepted(): number {
    return this.#accepted;
  }

  /** These bytes may be seen from now on, by whoever made them or by the others. */
  announce(bytes: Uint8Array, what: string): string {
    const digest = digestOf(bytes);
    this.#known.set(digest, what);
    return digest;
  }

  /** Whoever was told that they are kept has a right to them. */
  accept(digest: string, owner: string): void {
    this.#accepted += 1;
    this.#owed.set(digest, { owner, what: this.#known.get(digest) ?? '' });
  }

  /** The client itself writes over these bytes, or removes them. */
  supersede(bytes: Uint8Array, owner: string): void {
    const digest = digestOf(bytes);
    if (this.#owed.get(digest)?.owner === owner) this.#owed.delete(digest);
  }

  /** @throws Error for bytes that nobody ever put together: a mixture, a piece, or another file's */
  checkKnown(bytes: Uint8Array, where: string): void {
    if (this.#known.has(digestOf(bytes))) return;
    throw new Error(`${where}: ${bytes.byteLength} bytes that nobody wrote, ${head(bytes)}`);
  }

  /** What of the owed bytes is in none of these places, as sentences. */
  missing(found: ReadonlyMap<string, unknown>): string[] {
    return [...this.#owed].filter(([digest]) => !found.has(digest)).map(([, { what }]) => `lost: ${what}`);
  }
}

export function digestOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function head(bytes: Uint8Array): string {
  return JSON.stringify(Buffer.from(bytes.subarray(0, 60)).toString('latin1'));
}
