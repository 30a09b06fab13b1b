import type { Inode, IntentId } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';

/**
 * The pushes in progress: each by the node that it was started for, and by the open intent that it works on. The intent may belong to another
 * node by the end of the push (`tree/ownership-transfer`).
 */
export class RunningPushes {
  readonly #intents: Intents;
  readonly #started = new Map<Inode, AbortController>();
  readonly #starters = new Map<IntentId, Inode>();

  constructor(intents: Intents) {
    this.#intents = intents;
    intents.onChange((before, after) => {
      if (before === undefined && after !== undefined && this.#started.has(after.owner))
        this.#starters.set(after.id, after.owner);
      if (before !== undefined && after === undefined) this.#starters.delete(before.id);
    });
  }

  get size(): number {
    return this.#started.size;
  }

  /** Whether a push was started for this node. */
  has(ino: Inode): boolean {
    return this.#started.has(ino);
  }

  start(ino: Inode): AbortSignal {
    const controller = new AbortController();
    this.#started.set(ino, controller);
    const intent = this.#intents.ownedBy(ino);
    if (intent !== undefined && !this.#starters.has(intent.id)) this.#starters.set(intent.id, ino);
    return controller.signal;
  }

  /** The push is over. Its intent stays with it until `release`, while a refusal is in doubt. */
  end(ino: Inode): void {
    this.#started.delete(ino);
  }

  release(ino: Inode): void {
    if (this.#started.has(ino)) return;
    for (const [id, starter] of this.#starters) if (starter === ino) this.#starters.delete(id);
  }

  /** The node for which the push was started that works on the intent of `ino`; null for none. */
  starterFor(ino: Inode): Inode | null {
    const intent = this.#intents.ownedBy(ino);
    return (intent === undefined ? null : this.#starters.get(intent.id)) ?? null;
  }

  /** The node for which the push that was started for `ino` works now. */
  ownerOf(ino: Inode): Inode {
    for (const [id, starter] of this.#starters) if (starter === ino) return this.#intents.get(id)?.owner ?? ino;
    return ino;
  }

  abort(ino: Inode, why: string): void {
    this.#started.get(ino)?.abort(new DOMException(why, 'AbortError'));
  }

  abortAll(why: string): void {
    for (const ino of this.#started.keys()) this.abort(ino, why);
  }
}
