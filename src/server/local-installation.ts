import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { UsageError } from '../base/errors.ts';
import { silentLogger } from '../base/log.ts';
import { finishRemovals } from './account-removal.ts';
import { FIRST_UID } from './administration.ts';
import { claimStore } from './claimed-store.ts';
import { makeDataDirectory, refuseWritableByOthers } from './data-directory.ts';
import { lockData } from './data-lock.ts';
import { type Database, FIRST_NUMBER, type Table, type TableKey, UNFINISHED_COPY } from './database.ts';
import { entryBytes, versionBytes } from './holdings.ts';
import { bootId, truncatePartialUploads } from './housekeeping.ts';
import type { CopyTarget, InstallationRows, NextNumbers, RowKind, StoredVersion } from './installation.ts';
import { openParts } from './local-back-end.ts';
import type { ObjectStore } from './object-store.ts';
import { nameHash } from './repository.ts';
import { type ResourceRow, TEXT_END, type VersionRow } from './rows.ts';
import type { Parts } from './server-parts.ts';

/** A data directory without a server, as the source or the target of a copy. */
export class LocalInstallation implements CopyTarget {
  readonly name: string;
  readonly identity: string;
  readonly #parts: Parts;
  readonly #store: ObjectStore | null;
  readonly #unlock: () => Promise<void>;

  /**
   * Opens a directory with data, or with `isNew` one that is made. Closes the store.
   * @throws UsageError if a server uses the directory or it has no data; StorageError if the data cannot be used
   */
  static async open(
    directory: string,
    options: { readonly objects?: ObjectStore | null; readonly isNew?: boolean } = {},
  ): Promise<LocalInstallation> {
    const store = options.objects ?? null;
    let parts: Parts | undefined;
    let unlock = async (): Promise<void> => {};
    try {
      if (options.isNew !== true && !existsSync(join(directory, 'service.mdb')))
        throw new UsageError(`${directory} has no data of cfs serve`);
      makeDataDirectory(directory);
      refuseWritableByOthers(directory);
      unlock = await lockData(directory);
      parts = openParts({ dataDirectory: directory, objects: store });
      await claimStore(parts.database, store, silentLogger);
      // As a server does at its start: a removed account and lost bytes are no data.
      await finishRemovals(parts.database, parts.blobs);
      await truncatePartialUploads(parts, bootId());
      return new LocalInstallation(directory, parts, store, unlock);
    } catch (error) {
      await parts?.database.close();
      await store?.close();
      await unlock();
      throw error;
    }
  }

  private constructor(directory: string, parts: Parts, store: ObjectStore | null, unlock: () => Promise<void>) {
    this.name = directory;
    this.identity = resolve(directory);
    this.#parts = parts;
    this.#store = store;
    this.#unlock = unlock;
  }

  async origin(): Promise<string | null> {
    return (this.#database.meta.get('origin') as string | undefined) ?? null;
  }

  async nextNumbers(): Promise<NextNumbers> {
    const { meta } = this.#database;
    const kept = (name: string): number | undefined => meta.get(name) as number | undefined;
    return { uid: kept('nextUid') ?? FIRST_UID, entry: kept('nextNumber') ?? FIRST_NUMBER };
  }

  async unfinishedCopyOf(): Promise<string | null> {
    return this.#database.unfinishedCopyOf;
  }

  rows<K extends RowKind>(kind: K): AsyncIterable<readonly InstallationRows[K][]> {
    const readers: { readonly [T in RowKind]: () => AsyncIterable<readonly InstallationRows[T][]> } = {
      users: () =>
        this.#all(this.#database.users, 1, (row) => ({
          ...row,
          signOuts: row.signOuts ?? 0,
          networks: row.networks ?? [],
        })),
      applications: () => this.#all(this.#database.applications, 1, (row) => row),
      keyPairs: () => this.#all(this.#database.keyPairs, 1, (row) => row),
      refreshTokens: () =>
        this.#all(this.#database.refreshTokens, 1, (row, hash) => ({
          ...row,
          hash,
          usedMs: row.usedMs ?? row.createdMs,
        })),
      accessTokens: () =>
        this.#all(this.#database.accessTokens, 1, (row, hash) => {
          // A token whose refresh token was revoked is not valid any more, and is deleted when it expires.
          const isRevoked = row.refreshToken !== null && !this.#database.refreshTokens.doesExist(row.refreshToken);
          return isRevoked ? null : { ...row, hash };
        }),
      resources: () => this.#all(this.#database.resources, 2, (row) => row),
      workspaces: () => this.#all(this.#database.workspaces, 2, (row) => row),
      shares: () =>
        this.#all(this.#database.shares, 3, (row, [receiver, owner, folder]) => ({ ...row, receiver, owner, folder })),
      versions: () => this.#parts.histories.inPieces(),
    };
    return readers[kind]();
  }

  storedBytes(version: VersionRow): Promise<number | null> {
    return this.#parts.blobs.sizeBytes(version.blob);
  }

  async *read({ blob }: VersionRow, sizeBytes: number): AsyncGenerator<Uint8Array, void, undefined> {
    yield* await this.#parts.blobs.read(blob, 0, sizeBytes);
  }

  async begin(source: string, origin: string): Promise<void> {
    const { meta, users, unfinishedCopyOf } = this.#database;
    if (unfinishedCopyOf === source) return;
    if (unfinishedCopyOf !== null || users.getCount() > 0 || meta.get('origin') !== undefined)
      throw new UsageError(`${this.name} has data already: give a new directory`);
    this.#database.change(() => {
      void meta.put(UNFINISHED_COPY, source);
      void meta.put('origin', origin);
    });
  }

  async add<K extends Exclude<RowKind, 'versions'>>(kind: K, rows: readonly InstallationRows[K][]): Promise<void> {
    const adders: { readonly [T in Exclude<RowKind, 'versions'>]: (row: InstallationRows[T]) => void } = {
      users: (row) => {
        void this.#database.users.put(row.uid, row);
        void this.#database.emails.put(row.email, row.uid);
      },
      applications: (row) => void this.#database.applications.put(row.id, row),
      keyPairs: (row) => void this.#database.keyPairs.put(row.accessKeyId, row),
      refreshTokens: ({ hash, ...row }) => this.#database.addRefreshToken(hash, row),
      accessTokens: ({ hash, ...row }) => this.#database.addAccessToken(hash, row),
      resources: (row) => this.#addResource(row),
      workspaces: (row) => void this.#database.workspaces.put([row.uid, row.local], row),
      shares: ({ receiver, owner, folder, ...row }) => {
        void this.#database.shares.put([receiver, owner, folder], row);
        void this.#database.sharedFolders.put([owner, folder, receiver], true);
      },
    };
    await this.#database.changeTogether(() => {
      for (const row of rows) adders[kind](row);
    });
  }

  async knownVersions(rows: readonly VersionRow[]): Promise<ReadonlySet<VersionRow>> {
    return new Set(rows.filter(({ uid, file, seq }) => this.#database.versions.doesExist([uid, file, seq])));
  }

  async store(version: VersionRow, chunks: AsyncIterable<Uint8Array>): Promise<StoredVersion> {
    const { blobs } = this.#parts;
    const row = { ...version, blob: blobs.newName() };
    if (!version.complete && version.sizeBytes === 0) return { row, bytes: null, parts: [] };
    const writer = blobs.write(row.blob, 0);
    try {
      for await (const chunk of chunks) await writer.write([Buffer.from(chunk)]);
      if (version.complete) return { row, bytes: (await writer.finish()).bytes, parts: [] };
      await writer.suspend();
      return { row, bytes: null, parts: [] };
    } catch (error) {
      await writer.close();
      await blobs.remove([row.blob]);
      throw error;
    }
  }

  async addVersions(versions: readonly StoredVersion[]): Promise<void> {
    await this.#database.changeTogether(() => {
      for (const { row, bytes } of versions) {
        void this.#database.versions.put([row.uid, row.file, row.seq], row);
        if (bytes !== null) void this.#database.smallBlobs.put(row.blob, bytes);
        this.#database.holdings.note(row.uid, { unfinished: row.complete ? 0 : 1, bytes: versionBytes(row) });
        this.#nameNewest(row);
      }
    });
  }

  async finish(next: NextNumbers): Promise<void> {
    const { meta } = this.#database;
    this.#database.change(() => {
      void meta.put('nextUid', next.uid);
      void meta.put('nextNumber', next.entry);
      void meta.remove(UNFINISHED_COPY);
    });
  }

  async close(): Promise<void> {
    await this.#parts.database.close();
    await this.#store?.close();
    await this.#unlock();
  }

  get #database(): Database {
    return this.#parts.database;
  }

  /** With the indexes that the repository keeps of it. */
  #addResource(row: ResourceRow): void {
    const { resources, children, names, publicLinks, usage, holdings } = this.#database;
    const { uid, local, parent } = row;
    if (resources.doesExist([uid, local])) return;
    void resources.put([uid, local], row);
    void children.put([uid, parent, row.kind === 'folder' ? 0 : 1, row.seq], local);
    void names.put([uid, parent, nameHash(row.name), local], true);
    if (row.kind === 'file') {
      if (row.publicLink !== null) void publicLinks.put([uid, row.publicLink], local);
      void usage.put(uid, (usage.get(uid) ?? 0) + (row.newest?.sizeBytes ?? 0));
    }
    if (row.kind === 'file' || row.role !== 'system') holdings.note(uid, { entries: 1, bytes: entryBytes(row) });
  }

  /** The file's row names the blob of its newest version. */
  #nameNewest({ uid, file, seq, blob }: VersionRow): void {
    const row = this.#database.resources.get([uid, file]);
    if (row?.kind !== 'file' || row.newest?.seq !== seq) return;
    void this.#database.resources.put([uid, file], { ...row, newest: { ...row.newest, blob } });
  }

  /** All rows of a table. @param keyParts number of texts in a key */
  async *#all<V, K extends TableKey, R>(
    table: Table<V, K>,
    keyParts: number,
    convert: (row: V, key: K) => R | null,
  ): AsyncGenerator<readonly R[], void, undefined> {
    const edge = (text: string): K => (keyParts === 1 ? text : Array.from({ length: keyParts }, () => text)) as K;
    for await (const rows of this.#database.inPieces(table, edge(FIRST), edge(TEXT_END)))
      yield rows.flatMap(({ key, value }) => convert(value, key) ?? []);
  }
}

/** Before every text in the keys. */
const FIRST = ' ';
