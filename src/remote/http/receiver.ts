import { FsError, UsageError } from '../../base/errors.ts';
import { checked, loadAddon } from '../../base/native.ts';

/** Phases of a connection; the numbers are those in receiver.h. */
export const IDLE = 0;
export const HEAD_READ = 2;
export const OVER = 4;
export const GONE = 5;

export interface LineNews {
  /**
   * - HEAD_READ: the response head arrived
   * - BODY (3): more of the body is in the file
   * - IDLE: the whole body is in the file
   * - OVER: the connection ended or failed, and must be dropped
   * - GONE: it was dropped; no write follows
   */
  readonly phase: number;
  /** File offset up to which the last body was written, in every phase. */
  readonly at: number;
  /**
   * In HEAD_READ the head, including the final empty line; otherwise the checksums of blocks completed since the last event.
   */
  readonly bytes: Buffer;
}

/** What encrypts and decrypts a connection after its TLS handshake. */
export interface RecordKeys {
  /** As in native-deps/fuse-kernel/records.c. */
  readonly suite: number;
  /** Key and iv of the peer, then our own. */
  readonly keys: Uint8Array;
  /** Bytes that were already read from the socket. */
  readonly early: Uint8Array;
}

interface NativeReceiver {
  /** Whether Node's OpenSSL is usable. */
  readonly isTls: boolean;
  adopt(fd: number, suite: number, keys: Uint8Array | null, early: Uint8Array | null): number;
  ask(line: number, request: Uint8Array): number;
  land(line: number, fd: number, position: number, length: number): number;
  received(line: number): number;
  drop(line: number): number;
  hold(isHeld: 0 | 1): number;
  close(): number;
}

type OnEvent = (line: number, phase: number, at: number, bytes: Buffer) => void;

/** Returns a negative errno if it cannot be opened. */
type OpenReceiver = (onEvent: OnEvent) => NativeReceiver | number;

interface ReceiverAddon {
  readonly openReceiver?: OpenReceiver;
}

/**
 * The addon's receiver: a thread that moves bodies from connections ("lines") into files, bypassing V8
 * (native-deps/fuse-kernel/receiver.c, ADR 20). All methods return immediately; results arrive as events of the line.
 */
export class Receiver {
  readonly #native: NativeReceiver;
  readonly #hearers = new Map<number, (news: LineNews) => void>();

  /**
   * @returns null if unavailable: no addon, a processor without the checksum instructions, no descriptors or threads
   * left
   */
  static open(addon: () => ReceiverAddon = loadAddon<ReceiverAddon>): Receiver | null {
    try {
      const { openReceiver } = addon();
      return openReceiver === undefined ? null : new Receiver(openReceiver);
    } catch (error) {
      if (error instanceof UsageError || error instanceof FsError) return null;
      throw error;
    }
  }

  private constructor(openReceiver: OpenReceiver) {
    const opened = openReceiver((line, phase, at, bytes) => {
      const hear = this.#hearers.get(line);
      if (phase === GONE) this.#hearers.delete(line);
      hear?.({ phase, at, bytes });
    });
    if (typeof opened === 'number') checked('open a receiver', opened);
    this.#native = opened as NativeReceiver;
  }

  /** Whether it can decrypt TLS. */
  get isTls(): boolean {
    return this.#native.isTls;
  }

  /**
   * Takes over a connected socket: the caller closes its own descriptor. @param keys null for a connection without TLS ·
   * @returns the line's number · @throws FsError
   */
  adopt(fd: number, keys: RecordKeys | null, hear: (news: LineNews) => void): number {
    const { suite = 0, keys: bytes = null, early = null } = keys ?? {};
    const line = checked('take a connection over', this.#native.adopt(fd, suite, bytes, early));
    this.#hearers.set(line, hear);
    return line;
  }

  /** Sends a request on an idle line. @throws FsError: the line must be dropped */
  ask(line: number, request: Uint8Array): void {
    checked('send a request', this.#native.ask(line, request));
  }

  /** Writes the `length` bytes after the head to `position` of the file. @throws FsError */
  land(line: number, fd: number, position: number, length: number): void {
    checked('receive into a file', this.#native.land(line, fd, position, length));
  }

  /** Bytes received on the line so far, read or not. */
  received(line: number): number {
    return this.#native.received(line);
  }

  /** Closes the connection in any phase; a GONE event follows. */
  drop(line: number): void {
    this.#native.drop(line);
  }

  /** Whether pending events keep the process alive. */
  hold(isHeld: boolean): void {
    this.#native.hold(isHeld ? 1 : 0);
  }

  /** Waits for the write in progress; every line gets a GONE event. */
  close(): void {
    this.#native.close();
    const hearers = [...this.#hearers.values()];
    this.#hearers.clear();
    for (const hear of hearers) hear({ phase: GONE, at: 0, bytes: Buffer.alloc(0) });
  }
}
