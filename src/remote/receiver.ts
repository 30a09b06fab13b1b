import { FsError, UsageError } from '../base/errors.ts';
import { checked, loadAddon } from '../base/native.ts';

/** In which phase a line is; the numbers are receiver.h's. */
export const IDLE = 0;
export const HEAD_READ = 2;
export const OVER = 4;
export const GONE = 5;

export interface LineNews {
  /**
   * HEAD_READ: the head of an answer came · BODY (3): more of the body is in the file · IDLE: all of it is · OVER: the connection ended or failed,
   * and is to be dropped · GONE: it was dropped, and nothing is written for it any more
   */
  readonly phase: number;
  /** How far the last body is in its file, in every phase. */
  readonly at: number;
  /** In HEAD_READ the head, with the empty line that ends it; otherwise the marks of blocks that became whole since the last news. */
  readonly bytes: Buffer;
}

interface NativeReceiver {
  adopt(fd: number): number;
  ask(line: number, request: Uint8Array): number;
  land(line: number, fd: number, position: number, length: number): number;
  received(line: number): number;
  drop(line: number): number;
  hold(isHeld: 0 | 1): number;
  close(): number;
}

type Told = (line: number, phase: number, at: number, bytes: Buffer) => void;

/** A negative errno where it cannot be opened. */
type OpenReceiver = (told: Told) => NativeReceiver | number;

interface ReceiverAddon {
  readonly openReceiver?: OpenReceiver;
}

/**
 * The addon's receiver: a thread that moves bodies from connections ("lines") into files, so that their bytes never pass through V8
 * (native-deps/fuse-kernel/receiver.c, ADR 20). All methods return at once; what comes of them is heard as news of the line.
 */
export class Receiver {
  readonly #native: NativeReceiver;
  readonly #hearers = new Map<number, (news: LineNews) => void>();

  /** @returns null where there is none: no addon, a processor without instructions for marks, no descriptors or threads left */
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

  /** Takes a connected socket over: the caller closes its own descriptor. @returns the line's number · @throws FsError */
  adopt(fd: number, hear: (news: LineNews) => void): number {
    const line = checked('take a connection over', this.#native.adopt(fd));
    this.#hearers.set(line, hear);
    return line;
  }

  /** Sends a request on an idle line. @throws FsError: the line is of no use any more */
  ask(line: number, request: Uint8Array): void {
    checked('send a request', this.#native.ask(line, request));
  }

  /** The `length` bytes that follow the head go to `position` of the file. @throws FsError */
  land(line: number, fd: number, position: number, length: number): void {
    checked('receive into a file', this.#native.land(line, fd, position, length));
  }

  /** Bytes that came on the line so far, read or not. */
  received(line: number): number {
    return this.#native.received(line);
  }

  /** Closes the connection, whatever it is doing; GONE is heard when that is done. */
  drop(line: number): void {
    this.#native.drop(line);
  }

  /** Whether the process stays for what is to come. */
  hold(isHeld: boolean): void {
    this.#native.hold(isHeld ? 1 : 0);
  }

  /** Waits for the write that is under way; of every line it is heard that it is gone. */
  close(): void {
    this.#native.close();
    const hearers = [...this.#hearers.values()];
    this.#hearers.clear();
    for (const hear of hearers) hear({ phase: GONE, at: 0, bytes: Buffer.alloc(0) });
  }
}
