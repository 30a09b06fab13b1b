import { isDeepStrictEqual } from 'node:util';
import type { Inode } from '../base/vocabulary.ts';
import { ifSound } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import type { Push } from './push.ts';
import type { RemoteChanges } from './remote-changes.ts';

/** What is known of a refusal. */
export type Verdict =
  /** The service refused. */
  | { readonly type: 'refused' }
  /** The push is to be repeated: its second refusal is the service's. */
  | { readonly type: 'again' }
  /** The node was changed here meanwhile: what it is now was not refused. */
  | { readonly type: 'changed' }
  /** A network refused, or it is not known who did. */
  | { readonly type: 'unconfirmed'; readonly error: unknown };

/**
 * Refused pushes, while it is not known whether the service or a network in between refused them. Such a push is repeated once the service has
 * accepted another request; the second refusal of the same node is the service's (ADR 27).
 */
export class Refusals {
  readonly #deps: RefusalsDeps;
  readonly #doubted = new Map<Inode, Push>();
  /** The node of a refused push, where the service has accepted another request since. */
  readonly #refusedOnce = new Map<Inode, NodeRecord | undefined>();
  readonly #stopping = new AbortController();

  constructor(deps: RefusalsDeps) {
    this.#deps = deps;
  }

  /** Whether a refusal of the node is in doubt: no push of it is to begin. */
  has(ino: Inode): boolean {
    return this.#doubted.has(ino);
  }

  inos(): readonly Inode[] {
    return [...this.#doubted.keys()];
  }

  /** Resolves with null where the doubt was dropped meanwhile. Never rejects. */
  async verdict(push: Push): Promise<Verdict | null> {
    const { ino } = push.action;
    const refused = this.#node(ino);
    this.#doubted.set(ino, push);
    const confirmed: Verdict | null =
      this.#refusedOnce.has(ino) && isDeepStrictEqual(this.#refusedOnce.get(ino), refused)
        ? { type: 'refused' }
        : await this.#deps.changes.confirmed(this.#stopping.signal).then(
            () => null,
            (error: unknown) => ({ type: 'unconfirmed', error }),
          );
    if (this.#doubted.get(ino) !== push) return null;
    this.drop(ino);
    if (confirmed !== null) return confirmed;
    if (!isDeepStrictEqual(this.#node(ino), refused)) return { type: 'changed' };
    this.#refusedOnce.set(ino, refused);
    return { type: 'again' };
  }

  /** Nothing is to be known of the node's refusal any more. @returns whether it was in doubt */
  drop(ino: Inode): boolean {
    this.#refusedOnce.delete(ino);
    return this.#doubted.delete(ino);
  }

  stop(): void {
    this.#doubted.clear();
    this.#stopping.abort(new DOMException('the mount stops', 'AbortError'));
  }

  #node(ino: Inode): NodeRecord | undefined {
    return ifSound(() => this.#deps.store.get('node', ino));
  }
}

export interface RefusalsDeps {
  readonly store: StoreReader;
  readonly changes: Pick<RemoteChanges, 'confirmed'>;
}
