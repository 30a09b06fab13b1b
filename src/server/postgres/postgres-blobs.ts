import { type ObjectBytes, type ObjectStore, StoreError } from '../object-store.ts';
import { Refusal } from '../refusal.ts';
import type { BlobRules } from '../rules.ts';
import type { Postgres } from './postgres.ts';

/** A part of a blob: one object. */
interface Part {
  readonly start: number;
  readonly size: number;
  readonly key: string;
  readonly etag: string;
}

interface Blob {
  readonly bytes: Uint8Array | null;
  readonly parts: readonly Part[];
  readonly sizeBytes: number;
}

/** The bytes of complete versions: few bytes in the database, others in the parts of an object store. */
export class PostgresBlobs implements BlobRules {
  readonly #postgres: Postgres;
  readonly #store: ObjectStore;
  /** Blobs of complete versions never change. The last ones: a download asks for the size first. */
  readonly #known = new Map<string, Blob>();

  constructor(deps: { postgres: Postgres; store: ObjectStore }) {
    this.#postgres = deps.postgres;
    this.#store = deps.store;
  }

  async sizeBytes(name: string): Promise<number | null> {
    return (await this.#blob(name))?.sizeBytes ?? null;
  }

  async read(name: string, start: number, end: number): Promise<ObjectBytes> {
    const blob = await this.#blob(name);
    if (blob === null) throw new Error(`the database has no blob ${name}`);
    const chunks = this.#chunks(blob, start, end);
    if (blob.bytes !== null) return chunks;
    // A store that does not answer is a refusal, before the response has begun.
    const first = await chunks.next();
    return startingWith(first, chunks);
  }

  async source(name: string, bytesMax: number): Promise<Uint8Array> {
    const sizeBytes = (await this.sizeBytes(name)) ?? 0;
    const chunks: Uint8Array[] = [];
    for await (const chunk of await this.read(name, 0, Math.min(bytesMax, sizeBytes))) chunks.push(Buffer.from(chunk));
    return Buffer.concat(chunks);
  }

  async *#chunks({ bytes, parts }: Blob, start: number, end: number): AsyncGenerator<Uint8Array, void, undefined> {
    if (bytes !== null) yield bytes.subarray(start, end);
    for (const part of parts) {
      const [from, to] = [Math.max(start - part.start, 0), Math.min(end - part.start, part.size)];
      if (from < to) yield* await this.#readPart(part, from, to);
    }
  }

  async #readPart({ key, size, etag }: Part, start: number, end: number): Promise<ObjectBytes> {
    try {
      return await this.#store.read({ key, sizeBytes: size, etag }, start, end);
    } catch (error) {
      if (!(error instanceof StoreError && error.isPassing)) throw error;
      throw new Refusal(503, 'The object store does not answer', { 'Retry-After': '5' }, { cause: error });
    }
  }

  async #blob(name: string): Promise<Blob | null> {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    const row = await this.#postgres.row<{ bytes: Uint8Array | null; parts: readonly Part[] | null }>(
      `SELECT bytes, (SELECT json_agg(json_build_object('start', start, 'size', size, 'key', key, 'etag', etag)
          ORDER BY start) FROM parts WHERE blob = name) AS parts
      FROM blobs WHERE name = $1`,
      name,
    );
    if (row === undefined) return null;
    const parts = row.parts ?? [];
    const sizeBytes = row.bytes?.byteLength ?? parts.reduce((sum, { size }) => sum + size, 0);
    const blob = { bytes: row.bytes, parts, sizeBytes };
    if (this.#known.size >= KNOWN_MAX) this.#known.delete(this.#known.keys().next().value as string);
    this.#known.set(name, blob);
    return blob;
  }
}

async function* startingWith(
  first: IteratorResult<Uint8Array, void>,
  rest: AsyncGenerator<Uint8Array, void, undefined>,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    if (first.done !== true) yield first.value;
    yield* rest;
  } finally {
    await rest.return();
  }
}

/** Each has at most 16 KiB, or some parts. */
const KNOWN_MAX = 500;
