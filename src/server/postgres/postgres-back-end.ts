import { mkdir, readdir, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { silentLogger } from '../../base/log.ts';
import type { Metric } from '../admin-server.ts';
import type { BackEnd } from '../back-end.ts';
import { HOLDING_LIMITS } from '../holdings.ts';
import { PAGE_MAX, UPLOAD_KEPT_MS } from '../local-back-end.ts';
import type { ObjectStore } from '../object-store.ts';
import type { AdministrationRules } from '../rules.ts';
import { metric, one } from '../server-metrics.ts';
import type { ReferenceServerOptions, SharedDatabaseOptions } from '../server-options.ts';
import { claimInstallation, refuseUnfinishedCopy } from './installation-claim.ts';
import { newObjectName } from './object-name.ts';
import { Postgres } from './postgres.ts';
import { PostgresAccounts } from './postgres-accounts.ts';
import { PostgresAdministration } from './postgres-administration.ts';
import { PostgresBlobs } from './postgres-blobs.ts';
import { PostgresCollections } from './postgres-collections.ts';
import { PostgresHistories } from './postgres-histories.ts';
import { PostgresHousekeeping } from './postgres-housekeeping.ts';
import { PostgresRepository } from './postgres-repository.ts';
import { PostgresUploads } from './postgres-uploads.ts';

/** The back end of several servers: rules and rows in PostgreSQL, bytes in an object store. A server keeps nothing itself. */
export class PostgresBackEnd implements BackEnd {
  readonly rules;
  readonly administration: PostgresAdministration;
  readonly keptPort = null;
  readonly #postgres: Postgres;
  readonly #store: ObjectStore;
  readonly #uploads: PostgresUploads;
  readonly #housekeeping: PostgresHousekeeping;

  /**
   * @throws UsageError without an object store, a public origin or the package for PostgreSQL; StorageError if the data
   * cannot be used
   */
  static async open(options: ReferenceServerOptions, database: SharedDatabaseOptions): Promise<PostgresBackEnd> {
    const store = options.objects ?? null;
    if (store === null) throw new UsageError('--database needs --objects: servers do not share their disks');
    let postgres: Postgres | null = null;
    try {
      if (options.publicOrigin === undefined)
        throw new UsageError('--database needs --public-origin: all servers use the same URLs');
      const directory = await incomingDirectory(options.dataDirectory);
      postgres = await Postgres.open(database.url);
      await postgres.migrate();
      return new PostgresBackEnd(options, database, { postgres, store, directory });
    } catch (error) {
      await postgres?.close();
      await store.close();
      throw error;
    }
  }

  private constructor(
    options: ReferenceServerOptions,
    database: SharedDatabaseOptions,
    opened: { readonly postgres: Postgres; readonly store: ObjectStore; readonly directory: string },
  ) {
    this.#postgres = opened.postgres;
    this.#store = opened.store;
    const parts = {
      ...opened,
      clock: options.clock ?? systemClock,
      log: options.log ?? silentLogger,
      rules: { uniqueNames: options.uniqueNames ?? false, foldCase: options.foldCase ?? false },
      pageMax: options.pageMax ?? PAGE_MAX,
      limits: options.limits ?? HOLDING_LIMITS,
      versionsKept: options.versionsKept ?? Number.POSITIVE_INFINITY,
      accessTokenMs: options.accessTokenMs ?? 3600_000,
      acceptAnyKeys: options.acceptAnyKeys ?? false,
      uploadKeptMs: options.uploadKeptMs ?? UPLOAD_KEPT_MS,
      newBlob: newObjectName,
      ...database,
    };
    const blobs = new PostgresBlobs(parts);
    this.#uploads = new PostgresUploads(parts);
    this.rules = {
      accounts: new PostgresAccounts(parts),
      repository: new PostgresRepository(parts),
      collections: new PostgresCollections(parts),
      histories: new PostgresHistories(parts),
      uploads: this.#uploads,
      blobs,
    };
    this.administration = new PostgresAdministration(parts);
    this.#housekeeping = new PostgresHousekeeping({ ...parts, blobs });
  }

  async keepAddress(_port: number, origin: string): Promise<void> {
    await refuseUnfinishedCopy(this.#postgres);
    await claimInstallation(this.#postgres, this.#store, origin);
  }

  start(): void {
    this.#housekeeping.start();
  }

  isReadable(): Promise<boolean> {
    return this.#postgres.answers();
  }

  get metrics(): readonly Metric[] {
    return [metric('gauge', 'active_uploads', 'Versions being written.', one(this.#uploads.underWay))];
  }

  get uploadsUnderWay(): number {
    return this.#uploads.underWay;
  }

  get versionsToMove(): number {
    return 0;
  }

  collectObjects(): Promise<number> {
    return this.#housekeeping.collectObjects();
  }

  stopHousekeeping(): Promise<void> {
    return this.#housekeeping.close();
  }

  async close(): Promise<void> {
    await this.#housekeeping.close();
    await this.#store.close();
    await this.#postgres.close();
  }
}

/** Of `addWorkspace`, which no command of the operator uses. */
const RULES_WITHOUT_SERVER = { rules: { uniqueNames: false, foldCase: false }, limits: HOLDING_LIMITS };

/** Older files are of a server that was killed. */
const LEFT_AFTER_MS = 24 * 3600_000;

/** For temporary files. Those that a killed server left are deleted. */
async function incomingDirectory(dataDirectory: string): Promise<string> {
  const directory = join(dataDirectory, 'incoming');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    const found = await stat(path).catch(() => null);
    if (found !== null && found.mtimeMs < systemClock.nowMs() - LEFT_AFTER_MS) await unlink(path).catch(() => {});
  }
  return directory;
}

/** Administration of the accounts in a database, with or without running servers. Must be closed. */
export async function openPostgresAdministration(url: string): Promise<{
  readonly administration: AdministrationRules;
  /** @throws UsageError before the first start of a server */
  readonly origin: () => Promise<string>;
  readonly close: () => Promise<void>;
}> {
  const postgres = await Postgres.open(url, { connectionsMax: 1 });
  try {
    await postgres.migrate();
    await refuseUnfinishedCopy(postgres);
  } catch (error) {
    await postgres.close();
    throw error;
  }
  return {
    administration: new PostgresAdministration({ postgres, clock: systemClock, ...RULES_WITHOUT_SERVER }),
    origin: async () => {
      const row = await postgres.row<{ origin: string }>('SELECT origin FROM installation');
      if (row === undefined)
        throw new UsageError('start a server first: its --public-origin is the address for clients');
      return row.origin;
    },
    close: () => postgres.close(),
  };
}
