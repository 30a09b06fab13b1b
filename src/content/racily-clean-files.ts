import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { soundNode } from '../store/node-table.ts';
import type { FileBytes, StoreWriter } from '../store/tables.ts';
import { mayBeReplaced, recordNewest } from './newest-version.ts';
import type { VersionSource } from './version-source.ts';

export interface RacilyCleanFilesDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly source: Pick<VersionSource, 'newestVersion'>;
  readonly clock: Clock;
  /** The file's bytes differ from `was`: the kernel must drop its cached pages. */
  readonly onOther: (ino: Inode, was: FileBytes) => void;
}

/**
 * Racily clean files (docs/glossary.md): the cached bytes look current, but within the same tick of the service's clock the file may have been
 * overwritten with content of the same length. A listing cannot reveal that. After a listing in which the file's time is older than
 * `RACY_MS`, the next open(2) revalidates. An explicit refresh revalidates all such files immediately.
 */
export class RacilyCleanFiles {
  readonly #deps: RacilyCleanFilesDeps;

  constructor(deps: RacilyCleanFilesDeps) {
    this.#deps = deps;
  }

  /**
   * Requests the newest version of each such file in the folder, one request each. Most of them changed in the last seconds.
   *
   * @throws the errors of `VersionSource.newestVersion`, except 404
   */
  async revalidate(folder: Inode, signal: AbortSignal): Promise<void> {
    const racilyClean = await this.#racilyCleanIn(folder, signal);
    const waiting = racilyClean.values();
    const ask = async (): Promise<void> => {
      for (const ino of waiting) await this.#ask(ino, signal);
    };
    const asking = Array.from({ length: Math.min(REQUESTS_AT_ONCE, racilyClean.length) }, ask);
    for (const end of await Promise.allSettled(asking)) if (end.status === 'rejected') throw end.reason;
  }

  async #racilyCleanIn(folder: Inode, signal: AbortSignal): Promise<readonly Inode[]> {
    const { store } = this.#deps;
    const racilyClean: Inode[] = [];
    for (let after: string | undefined, more = true; more; ) {
      more = false;
      let seen = 0;
      for (const [name, ino] of store.scan('name', folder, after)) {
        const node = soundNode(store, ino);
        if (node !== undefined && mayBeReplaced(node)) racilyClean.push(ino);
        after = name;
        more = ++seen === NAMES_PER_TURN;
        if (more) break;
      }
      if (!more) break;
      await nextTurn();
      signal.throwIfAborted();
    }
    return racilyClean;
  }

  async #ask(ino: Inode, signal: AbortSignal): Promise<void> {
    const { store, contents, source, clock, onOther } = this.#deps;
    const asked = soundNode(store, ino);
    const resource = asked?.remote?.resource;
    if (asked?.local == null || resource === undefined || !mayBeReplaced(asked)) return;
    try {
      const version = await source.newestVersion(resource, signal);
      if (version === null) return;
      const { other } = recordNewest({ store, contents, clock }, { asked, resource, version });
      if (other !== null) onOther(ino, asked.local);
    } catch (error) {
      // The listing shows the deletion.
      if (!(error instanceof ApiError && error.status === 404)) throw error;
    }
  }
}

const REQUESTS_AT_ONCE = 4;
const NAMES_PER_TURN = 500;
