import { join } from 'node:path';
import { type Clock, systemClock } from '../base/clock.ts';
import { type Logger, silentLogger } from '../base/log.ts';
import { Accounts } from './accounts.ts';
import type { Metric } from './admin-server.ts';
import { Administration } from './administration.ts';
import type { BackEnd } from './back-end.ts';
import { Blobs } from './blobs.ts';
import { claimStore } from './claimed-store.ts';
import { makeDataDirectory, refuseWritableByOthers } from './data-directory.ts';
import { lockData } from './data-lock.ts';
import { Database } from './database.ts';
import { Histories } from './histories.ts';
import { bootId, collectGarbage, sweepBlobs, truncatePartialUploads } from './housekeeping.ts';
import { localRules } from './local-rules.ts';
import { ObjectCollector } from './object-collector.ts';
import { ObjectMover } from './object-mover.ts';
import { Repository } from './repository.ts';
import type { VersionRow } from './rows.ts';
import type { Rules } from './rules.ts';
import { Sealer } from './sealer.ts';
import { backEndMetrics } from './server-metrics.ts';
import type { ReferenceServerOptions } from './server-options.ts';
import type { Parts } from './server-parts.ts';
import { Uploads } from './uploads.ts';

/** The embedded default: tables and files of one data directory, which one process uses. */
export class LocalBackEnd implements BackEnd {
  readonly rules: Rules;
  readonly administration: Administration;
  readonly #parts: Parts;
  readonly #options: ReferenceServerOptions;
  readonly #log: Logger;
  readonly #unlock: () => Promise<void>;
  /** Null without an object store. */
  readonly #objects: ObjectCollector | null;
  #stopHousekeeping = async (): Promise<void> => {};

  /** @throws UsageError if the directory is in use; StorageError if the data cannot be used */
  static async open(options: ReferenceServerOptions): Promise<LocalBackEnd> {
    makeDataDirectory(options.dataDirectory);
    refuseWritableByOthers(options.dataDirectory);
    const unlock = await lockData(options.dataDirectory);
    let parts: Parts | undefined;
    try {
      parts = openParts(options);
      parts.database.refuseUnfinishedCopy();
      await claimStore(parts.database, options.objects ?? null, options.log ?? silentLogger);
      await truncatePartialUploads(parts, bootId());
      await sweepBlobs(parts);
      for (const version of parts.histories.all()) if (version.sha256 === null) parts.sealer.add(version);
      return new LocalBackEnd(options, parts, unlock);
    } catch (error) {
      await parts?.mover?.close();
      await parts?.database.close();
      await options.objects?.close();
      await unlock();
      throw error;
    }
  }

  private constructor(options: ReferenceServerOptions, parts: Parts, unlock: () => Promise<void>) {
    this.#options = options;
    this.#log = options.log ?? silentLogger;
    this.#parts = parts;
    this.#unlock = unlock;
    this.rules = localRules(parts);
    this.administration = new Administration(parts);
    const store = options.objects ?? null;
    this.#objects = store === null ? null : new ObjectCollector({ ...parts, store, log: this.#log });
  }

  get keptPort(): number | null {
    return (this.#parts.database.meta.get('port') as number | undefined) ?? null;
  }

  async keepAddress(port: number, origin: string): Promise<void> {
    keepAddress(this.#parts.database, port, origin);
  }

  start(): void {
    this.#objects?.start();
    this.#parts.mover?.start();
    this.#stopHousekeeping = collectGarbage(this.#parts, {
      uploadKeptMs: this.#options.uploadKeptMs ?? UPLOAD_KEPT_MS,
      log: this.#log,
    });
  }

  isReadable(): boolean {
    return this.#parts.database.isReadable();
  }

  get metrics(): readonly Metric[] {
    return backEndMetrics(this.#parts);
  }

  get uploadsUnderWay(): number {
    return this.#parts.uploads.underWay;
  }

  get versionsToMove(): number {
    return this.#parts.mover?.waiting ?? 0;
  }

  async collectObjects(): Promise<number> {
    return (await this.#objects?.collect()) ?? 0;
  }

  stopHousekeeping(): Promise<void> {
    return this.#stopHousekeeping();
  }

  async close(): Promise<void> {
    await this.#parts.sealer.close();
    await this.#parts.mover?.close();
    await this.#objects?.close();
    await this.#parts.database.close();
    await this.#unlock();
  }
}

/** Incomplete versions are deleted after this long without progress. */
export const UPLOAD_KEPT_MS = 7 * 24 * 3600_000;
export const PAGE_MAX = 1000;

export function openParts(options: ReferenceServerOptions): Parts {
  const clock = options.clock ?? systemClock;
  const database = Database.open(options.dataDirectory, { disk: options.disk, limits: options.limits });
  const store = options.objects ?? null;
  const blobs = new Blobs({ directory: join(options.dataDirectory, 'blobs'), database, store });
  const repository = new Repository({
    database,
    clock,
    rules: { uniqueNames: options.uniqueNames ?? false, foldCase: options.foldCase ?? false },
    pageMax: options.pageMax ?? PAGE_MAX,
  });
  const versionsKept = options.versionsKept ?? Number.POSITIVE_INFINITY;
  const histories = new Histories({
    database,
    clock,
    repository,
    versionsKept,
    removeBlobs: (names) => blobs.remove(names),
  });
  const accounts = new Accounts({
    database,
    clock,
    accessTokenMs: options.accessTokenMs ?? 3600_000,
    acceptAnyKeys: options.acceptAnyKeys ?? false,
  });
  const log = options.log ?? silentLogger;
  const mover = store === null ? null : new ObjectMover({ store, database, blobs, histories, clock, log });
  const sealed = (version: VersionRow): void => mover?.add(version);
  const sealer = new Sealer({ database, blobs, histories, clock, log, sealed });
  const uploads = new Uploads({ database, blobs, histories, sealer, accounts, repository, clock });
  histories.spare((version) => uploads.isUnderWay(version));
  return { database, clock, accounts, repository, histories, blobs, sealer, uploads, mover };
}

/** Administration of a data directory, with or without a running server. Must be closed. */
export async function openAdministration(options: {
  dataDirectory: string;
  clock?: Clock;
}): Promise<OpenAdministration> {
  const parts = openParts(options);
  const { meta } = parts.database;
  try {
    parts.database.refuseUnfinishedCopy();
  } catch (error) {
    await parts.database.close();
    throw error;
  }
  return {
    administration: new Administration(parts),
    origin: () => (meta.get('origin') as string | undefined) ?? null,
    reserve: (port) => {
      const origin = `http://127.0.0.1:${port}`;
      keepAddress(parts.database, port, origin);
      return origin;
    },
    close: () => parts.database.close(),
  };
}

export interface OpenAdministration {
  readonly administration: Administration;
  /** The server's origin at its last start; null before its first start. */
  origin(): string | null;
  /** Sets the port of a server that has not started yet. @returns its origin */
  reserve(port: number): string;
  close(): Promise<void>;
}

/** Most starts find it stored already and write nothing: a server must start on a full disk. */
function keepAddress(database: Database, port: number, origin: string): void {
  const { meta } = database;
  if (meta.get('port') === port && meta.get('origin') === origin) return;
  database.change(() => {
    void meta.put('port', port);
    void meta.put('origin', origin);
  });
}
