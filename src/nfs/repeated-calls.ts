import type { RpcBody } from './rpc-server.ts';

/** A client repeats a call within minutes, and has a few dozen in flight. */
const CALLS_MAX = 1024;

/**
 * The replies to the latest calls that must not be carried out twice. A client that lost its connection sends such a call again under the same
 * number (xid): a second REMOVE would fail with ENOENT.
 */
export class RepeatedCalls {
  readonly #replies = new Map<string, Promise<RpcBody>>();

  /** The reply that the call got earlier, or will get; otherwise runs it. */
  once(key: string, run: () => Promise<RpcBody>): Promise<RpcBody> {
    const known = this.#replies.get(key);
    if (known !== undefined) return known;
    const reply = run();
    this.#replies.set(key, reply);
    if (this.#replies.size > CALLS_MAX) {
      const [oldest] = this.#replies.keys();
      if (oldest !== undefined) this.#replies.delete(oldest);
    }
    return reply;
  }
}
