/** A store of immutable objects in another place. An object appears whole or not at all, and keys are used once. */
export interface ObjectStore {
  /** For messages. */
  readonly name: string;
  /**
   * Stores bytes. @returns the entity tag of the object
   * @throws DamagedFileError if a file is not the one that was hashed · StoreError
   */
  put(key: string, content: HashedBytes | HashedFile, signal: AbortSignal): Promise<string>;
  /** Bytes `[start, end)`, at least one. Resolves when the store begins to answer. @throws StoreError */
  read(object: StoredObject, start: number, end: number): Promise<ObjectBytes>;
  /** Removes an object, and with `mayBePartial` what an interrupted `put` left. A missing one is fine. @throws StoreError */
  remove(key: string, mayBePartial: boolean, signal: AbortSignal): Promise<void>;
  /** The content of a small object; null if there is none. @throws StoreError */
  readText(key: string): Promise<string | null>;
  writeText(key: string, text: string): Promise<void>;
  close(): Promise<void>;
}

/** Bytes in memory. Must not change until they are stored. */
export interface HashedBytes {
  readonly bytes: Uint8Array;
  readonly sizeBytes: number;
  /** Hexadecimal. */
  readonly sha256: string;
}

export interface HashedFile {
  readonly path: string;
  readonly sizeBytes: number;
  /** Hexadecimal. */
  readonly sha256: string;
}

export interface StoredObject {
  readonly key: string;
  readonly sizeBytes: number;
  /** Of the object as it was stored: a read of any other object fails. */
  readonly etag: string;
}

/** A chunk is valid until the next one is requested. `return` ends it early, also before the first chunk. */
export type ObjectBytes = AsyncIterableIterator<Uint8Array>;

/** A failure of the store. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  /** The store cannot be reached or is overloaded: the same request may work later. */
  readonly isPassing: boolean;

  constructor(message: string, { isPassing, ...options }: ErrorOptions & { isPassing: boolean }) {
    super(message, options);
    this.isPassing = isPassing;
  }
}

/** A file whose bytes are no longer those that were received. */
export class DamagedFileError extends Error {
  override readonly name = 'DamagedFileError';
}
