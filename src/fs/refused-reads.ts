import type { Clock } from '../base/clock.ts';
import { FsError } from '../base/errors.ts';
import type { ServiceHealth } from '../base/service-health.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { StoreReader } from '../store/tables.ts';
import { pathOf } from '../sync/sync-event.ts';
import type { NodeChanges } from '../tree/node-changes.ts';
import type { ThumbnailCache } from './thumbnails-ahead.ts';

const FILES_MAX = 1_000;
/** A thumbnailer whose read failed takes a moment to note the failure. */
const LATE_MS = 5_000;
/** Interval at which the answers of the service are looked at while files are refused. */
const LOOK_MS = 5_000;

/**
 * Files whose bytes were refused to a program because the service did not answer. A desktop takes such a picture for a broken one, and never
 * tries again while its mtime stays. When the service is back, the notes about exactly these files are removed, and 'readable' is emitted for those
 * that had one.
 */
export class RefusedReads {
  readonly #store: StoreReader;
  readonly #cache: Pick<ThumbnailCache, 'retry'>;
  readonly #clock: Clock;
  readonly #health: Pick<ServiceHealth, 'answers'>;
  readonly #changes: Pick<NodeChanges, 'emit'>;
  readonly #refused = new Set<Inode>();
  /** Answers of the service at the last refusal. */
  #answers = 0;
  #isWaiting = false;

  constructor(deps: {
    store: StoreReader;
    cache: Pick<ThumbnailCache, 'retry'>;
    clock: Clock;
    health: Pick<ServiceHealth, 'answers'>;
    changes: Pick<NodeChanges, 'emit'>;
  }) {
    this.#changes = deps.changes;
    this.#health = deps.health;
    this.#store = deps.store;
    this.#cache = deps.cache;
    this.#clock = deps.clock;
  }

  /** Passes the answer of a read on, and learns from it. */
  watched<T>(ino: Inode, answer: Promise<T>): Promise<T> {
    answer.then(
      () => this.answered(),
      (error: unknown) => {
        if (error instanceof FsError && (error.errno === 'ETIMEDOUT' || error.errno === 'EIO')) this.#add(ino);
      },
    );
    return answer;
  }

  /** The service answers. */
  answered(): void {
    if (this.#refused.size === 0) return;
    const files = new Map([...this.#refused].map((ino) => [pathOf(this.#store, ino), ino]));
    this.#refused.clear();
    void this.#retry(files);
    this.#clock.after(LATE_MS, () => void this.#retry(files));
  }

  async #retry(files: ReadonlyMap<string, Inode>): Promise<void> {
    const noted = await this.#cache.retry([...files.keys()]);
    const inos = noted.flatMap((path) => files.get(path) ?? []);
    if (inos.length > 0) this.#changes.emit('readable', inos);
  }

  #add(ino: Inode): void {
    for (const oldest of this.#refused) {
      if (this.#refused.size < FILES_MAX) break;
      this.#refused.delete(oldest);
    }
    this.#refused.add(ino);
    this.#answers = this.#health.answers;
    this.#waitForAnswer();
  }

  /** A read may time out before the service counts as unreachable: then no event reports its return. */
  #waitForAnswer(): void {
    if (this.#isWaiting || this.#refused.size === 0) return;
    this.#isWaiting = true;
    this.#clock.after(LOOK_MS, () => {
      this.#isWaiting = false;
      if (this.#health.answers !== this.#answers) this.answered();
      else this.#waitForAnswer();
    });
  }
}
