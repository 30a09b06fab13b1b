import { readSync, writeSync, writevSync } from 'node:fs';
import type { Socket } from 'node:net';
import { loadReceiveAwake, type ReceiveAwake } from '../base/native.ts';

/**
 * Sends and receives on a connection by one system call each, past the streams of Node: they cost more than the smaller half of a call, and copy
 * each long record. libuv has made the descriptor non-blocking. Where the descriptor is unknown, the stream does all of it.
 */
export class DirectSocket {
  readonly #socket: Socket;
  readonly #receiveAwake: ReceiveAwake | null;

  constructor(socket: Socket, receiveAwake: ReceiveAwake | null = loadReceiveAwake()) {
    this.#socket = socket;
    this.#receiveAwake = receiveAwake;
  }

  /** Sends the pieces. Their memory may be reused afterwards: bytes that the connection does not take yet are copied. */
  send(pieces: readonly Uint8Array[]): void {
    const socket = this.#socket;
    if (socket.destroyed) return;
    let rest = pieces;
    // The client receives meanwhile: a second attempt is cheaper than a copy.
    for (let sent = -1; sent !== 0 && rest.length > 0 && socket.writableLength === 0; ) {
      sent = this.#sendNow(rest);
      rest = restOf(rest, sent);
    }
    if (rest.length > 0) socket.write(Buffer.concat(rest));
  }

  /**
   * Receives bytes that have arrived, or that arrive within `waitNs`; without the addon it does not wait.
   *
   * @returns their number; 0: none, and the stream reports more, the end or an error
   */
  receive(target: Uint8Array, waitNs = 0): number {
    const descriptor = this.#descriptor;
    if (descriptor < 0 || this.#socket.isPaused() || this.#socket.readableLength > 0) return 0;
    if (this.#receiveAwake !== null) return this.#receiveAwake(descriptor, target, waitNs);
    try {
      return readSync(descriptor, target);
    } catch {
      return 0;
    }
  }

  #sendNow(pieces: readonly Uint8Array[]): number {
    const descriptor = this.#descriptor;
    if (descriptor < 0) return 0;
    try {
      const [piece] = pieces;
      if (piece !== undefined && pieces.length === 1) return writeSync(descriptor, piece);
      return writevSync(descriptor, pieces);
    } catch {
      return 0; // full (EAGAIN), or broken: the stream learns it
    }
  }

  /** -1: unknown. Missing in Node's types and documentation; used by Node itself (lib/net.js). */
  get #descriptor(): number {
    const { _handle } = this.#socket as unknown as { readonly _handle?: { readonly fd?: number } | null };
    return _handle?.fd ?? -1;
  }
}

/** The bytes after the first `sent`, in the same memory. */
function restOf(pieces: readonly Uint8Array[], sent: number): readonly Uint8Array[] {
  let skipped = sent;
  const rest: Uint8Array[] = [];
  for (const piece of pieces) {
    const taken = Math.min(skipped, piece.byteLength);
    skipped -= taken;
    if (taken < piece.byteLength) rest.push(piece.subarray(taken));
  }
  return rest;
}
