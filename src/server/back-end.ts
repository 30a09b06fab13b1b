import type { Metric } from './admin-server.ts';
import type { AdministrationRules, Rules } from './rules.ts';

/** Where a server has its rules, rows and bytes. */
export interface BackEnd {
  readonly rules: Rules;
  readonly administration: AdministrationRules;
  /** The port of the last start; null if the back end keeps none. */
  readonly keptPort: number | null;
  /** Called once the server listens. @throws StorageError if the data belong to another origin */
  keepAddress(port: number, origin: string): Promise<void>;
  /** Starts the work in the background. */
  start(): void;
  isReadable(): boolean | Promise<boolean>;
  readonly metrics: readonly Metric[];
  /** Number of versions being written. */
  readonly uploadsUnderWay: number;
  /** Versions that wait for the object store. */
  readonly versionsToMove: number;
  /** Deletes objects without a reference, as every minute. @returns how many */
  collectObjects(): Promise<number>;
  /** Resolves when the work in the background has stopped. */
  stopHousekeeping(): Promise<void>;
  close(): Promise<void>;
}
