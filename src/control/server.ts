import { chmodSync, lstatSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { dirname } from 'node:path';
import { firstOf } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { errorToRecord, StorageError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { LOG_LEVELS } from '../base/log-level.ts';
import { type SocketAddress, socketAddress } from '../base/socket-address.ts';
import { JsonLines } from './json-lines.ts';
import {
  type AnswerLine,
  type CallContext,
  type ControlHandlers,
  METHOD_NAMES,
  type MethodName,
  PART_BYTES_MAX,
  PATHS_MAX,
  type RequestLine,
} from './methods.ts';

const REQUEST_BYTES_MAX = 1024 ** 2;
const REQUEST_MS_MAX = 10_000;
const CONNECTIONS_MAX = 64;
const CALLS_PER_CONNECTION_MAX = 32;
/** Limit of calls that wait for the service, perhaps for days. It is below that of connections, so that status and unmount still work. */
const WAITING_MAX = 48;
/** Exit code: not everything is done; the rest stays queued and safe. */
const PENDING = 10;
/** Interval of the check that the socket still exists. */
const LOOK_EVERY_MS = 5_000;
/** A client that does not read its answers is disconnected at this many unread bytes. */
const UNREAD_BYTES_MAX = 16 * 1024 ** 2;

/**
 * The socket of a running mount: opening it grants full control, so it has mode 0600 in a directory of mode 0700.
 * Sizes, times and counts of requests are bounded, so a client cannot overload the mount.
 *
 * Start it only as the owner of the mounted store: an existing socket then belongs to a dead or draining mount.
 */
export class ControlServer {
  readonly #handlers: ControlHandlers;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #path: string;
  readonly #requestMsMax: number;
  #server: Server;
  readonly #closing = new AbortController();
  readonly #sockets = new Set<Socket>();
  readonly #underWay = new Set<Promise<void>>();
  #waiting = 0;
  #address: SocketAddress | null = null;
  /** The inode of our socket: the mount of the account's other root may have the path by now. */
  #inode: number | null = null;
  #stopped: Promise<void> | null = null;
  #cancelLook: () => void = () => {};

  constructor(deps: {
    socketPath: string;
    handlers: ControlHandlers;
    clock: Clock;
    log: Logger;
    /** For tests; 10 s otherwise. */
    requestMsMax?: number;
  }) {
    this.#path = deps.socketPath;
    this.#handlers = deps.handlers;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#requestMsMax = deps.requestMsMax ?? REQUEST_MS_MAX;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  /** Listens. @throws StorageError if other users can access the directory, or the socket cannot be created */
  async listen(): Promise<void> {
    await this.#bind();
    this.#lookLater();
  }

  /** Recreates a missing socket: XDG_RUNTIME_DIR disappears with the user's last session, but the mount may outlive it. */
  #lookLater(): void {
    this.#cancelLook = this.#clock.after(LOOK_EVERY_MS, () => {
      void this.#look().finally(() => {
        if (this.#stopped === null) this.#lookLater();
      });
    });
  }

  async #look(): Promise<void> {
    try {
      if (lstatSync(this.#path, { throwIfNoEntry: false }) !== undefined) return;
      this.#server.close(); // open connections stay
      this.#address?.release();
      this.#server = createServer((socket) => this.#accept(socket));
      await this.#bind();
      this.#log.info({ path: this.#path }, 'the control socket was gone, and is made anew');
      if (this.#stopped === null) return;
      // The server was stopped meanwhile.
      this.#removeOwn();
      this.#server.close();
    } catch (err) {
      // The directory may not be writable before the next session;the next check retries.
      this.#log.debug({ err }, 'no control socket');
    }
  }

  async #bind(): Promise<void> {
    const directory = dirname(this.#path);
    prepareDirectory(directory);
    // Bound under a private name first: on close libuv unlinks the bound name, even if another process owns it by then.
    const own = `${this.#path}.${process.pid}`;
    rmSync(own, { force: true });
    const address = socketAddress(own);
    this.#address = address;
    try {
      await new Promise<void>((resolve, reject) => {
        this.#server.once('error', reject);
        this.#server.listen(address.address, () => {
          this.#server.removeListener('error', reject);
          resolve();
        });
      });
      chmodSync(own, 0o600); // until now the directory denied access to others
      this.#inode = lstatSync(own).ino;
      renameSync(own, this.#path);
    } catch (error) {
      address.release();
      throw new StorageError(`the control socket ${this.#path} cannot be made`, { cause: error });
    }
    this.#server.on('error', (err) => this.#log.warn({ err }, 'control socket failed'));
  }

  /** Removes the socket: its path belongs to the next owner. Open connections stay. */
  stopListening(): void {
    if (this.#stopped !== null) return;
    this.#cancelLook();
    // Before it is closed: until then nothing else has its inode.
    this.#removeOwn();
    this.#stopped = new Promise((resolve) => this.#server.close(() => resolve()));
  }

  /** One root of an account may be mounted while the mount of the other still drains: the socket of that one stays. */
  #removeOwn(): void {
    if (lstatSync(this.#path, { throwIfNoEntry: false })?.ino === this.#inode) rmSync(this.#path, { force: true });
  }

  /**
   * Ends all calls and removes the socket. Calls whose handlers end within a second are still answered, so an `umount`
   * handler returns when the mount is gone. Handlers never wait for `close`, which follows them.
   */
  async close(): Promise<void> {
    this.#closing.abort(new UsageError('the mount is ending', 1));
    this.stopListening();
    await Promise.race([Promise.allSettled(this.#underWay), this.#clock.sleep(1000)]);
    for (const socket of this.#sockets) {
      socket.end();
      this.#clock.after(1000, () => socket.destroy());
    }
    await this.#stopped;
    this.#address?.release();
  }

  #accept(socket: Socket): void {
    if (this.#sockets.size >= CONNECTIONS_MAX || this.#closing.signal.aborted) {
      socket.destroy();
      return;
    }
    this.#sockets.add(socket);
    const gone = new AbortController();
    const lines = new JsonLines({ lineBytesMax: REQUEST_BYTES_MAX });
    let calls = 0;

    // The time limit for one complete request, and for the pause between two requests.
    let cancelDeadline = (): void => {};
    const startDeadline = (): void => {
      cancelDeadline();
      cancelDeadline = this.#clock.after(this.#requestMsMax, () => socket.destroy());
    };
    startDeadline();

    socket.on('error', (err) => this.#log.debug({ err }, 'control connection failed'));
    socket.on('close', () => {
      cancelDeadline();
      this.#sockets.delete(socket);
      gone.abort(new DOMException('the client disconnected', 'AbortError'));
    });
    socket.on('data', (chunk) => {
      try {
        for (const request of lines.push(chunk)) {
          if (++calls > CALLS_PER_CONNECTION_MAX) throw new UsageError('too many calls at once on one connection');
          cancelDeadline();
          const call = this.#serve(request, socket, gone.signal).finally(() => {
            this.#underWay.delete(call);
            calls--;
            if (calls === 0 && !socket.destroyed) startDeadline();
          });
          this.#underWay.add(call);
        }
      } catch (error) {
        send(socket, { id: null, error: withoutStack(error) });
        socket.destroySoon();
      }
    });
  }

  async #serve(request: unknown, socket: Socket, gone: AbortSignal): Promise<void> {
    const id = idOf(request);
    const { signal, release } = firstOf([gone, this.#closing.signal]);
    try {
      const { method, params } = request as RequestLine;
      if (id === null || !METHOD_NAMES.includes(method as MethodName))
        throw new UsageError(`no such request: ${String(method).slice(0, 40)}`);
      const context: CallContext<unknown> = {
        signal,
        progress: (progress) => send(socket, { id, progress }),
      };
      const handler = this.#handlers[method as MethodName] as (
        params: unknown,
        context: CallContext<unknown>,
      ) => unknown;
      const checked = checkedParams(method as MethodName, params);
      if (!waitsForService(method as MethodName, checked)) {
        send(socket, { id, result: await handler(checked, context) });
        return;
      }
      if (this.#waiting >= WAITING_MAX)
        throw new UsageError(`${WAITING_MAX} commands wait for this mount already: try again later`, PENDING);
      this.#waiting++;
      try {
        send(socket, { id, result: await handler(checked, context) });
      } finally {
        this.#waiting--;
      }
    } catch (error) {
      if (!gone.aborted) send(socket, { id, error: withoutStack(error) });
    } finally {
      release();
    }
  }
}

/** An unmount may take as long, but is never rejected by the limit. */
function waitsForService(method: MethodName, params: unknown): boolean {
  const isFollowing = method === 'watch' && (params as { readonly follow: boolean }).follow;
  return (
    isFollowing ||
    method === 'pin' ||
    method === 'evict' ||
    (method === 'sync' && (params as { readonly wait: boolean }).wait)
  );
}

/** Creates the socket's directory, or rejects one that other users can access. */
function prepareDirectory(directory: string): void {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const stats = lstatSync(directory);
    if (!stats.isDirectory()) throw new Error('it is not a directory');
    if (stats.uid !== process.getuid?.()) throw new Error('it belongs to someone else');
    if ((stats.mode & 0o077) !== 0) chmodSync(directory, 0o700);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new StorageError(`the directory of the control socket ${directory} cannot be used: ${reason}`, {
      cause: error,
    });
  }
}

function idOf(request: unknown): number | null {
  const id = typeof request === 'object' && request !== null ? (request as { id?: unknown }).id : null;
  return typeof id === 'number' && Number.isSafeInteger(id) ? id : null;
}

/** Parameters come from another process: handlers get only validated values. */
function checkedParams(method: MethodName, params: unknown): unknown {
  const given = (typeof params === 'object' && params !== null ? params : {}) as Record<string, unknown>;
  switch (method) {
    case 'status':
    case 'metrics':
    case 'resume':
      return {};
    case 'limit': {
      const limits = (['up', 'down'] as const).filter((name) => given[name] !== undefined);
      if (limits.some((name) => given[name] === 0)) throw new UsageError('up, down: expected more than 0');
      return Object.fromEntries(limits.map((name) => [name, numberOf(given, name)]));
    }
    case 'pause':
      return { untilMs: numberOf(given, 'untilMs') };
    case 'unsynced':
      return { after: numberOf(given, 'after') ?? 0 };
    case 'unsyncedParts': {
      const [ino = 0, start = 0, end = 0] = (['ino', 'start', 'end'] as const).map(
        (name) => numberOf(given, name) ?? 0,
      );
      if (end < start || end - start > PART_BYTES_MAX)
        throw new UsageError(`end: expected up to ${PART_BYTES_MAX} bytes from start on`);
      return { ino, start, end };
    }
    case 'logLevel': {
      const level = LOG_LEVELS.find((known) => known === given.level) ?? null;
      if (level === null && given.level !== null)
        throw new UsageError(`level: expected one of ${LOG_LEVELS.join(', ')}`);
      return { level };
    }
    case 'sync':
      return { path: pathOf(given), wait: given.wait === true };
    case 'refresh':
      return { path: pathOf(given), accept: given.accept === true };
    case 'discard':
      return { path: pathOf(given), isSure: given.isSure === true };
    case 'pin':
      return { path: pathOf(given), once: given.once === true };
    case 'conflicts':
    case 'evict':
    case 'retry':
    case 'unpin':
    case 'locate':
      return { path: pathOf(given) };
    case 'paths':
      return { resources: stringsOf(given, 'resources') };
    case 'states':
      return { paths: stringsOf(given, 'paths') };
    case 'folder': {
      const after = given.after ?? null;
      if (after !== null && typeof after !== 'string') throw new UsageError('after: expected a string');
      return { path: pathOf(given) ?? '', after };
    }
    case 'copyAttributes': {
      const [path, from] = [pathOf(given), pathOf(given, 'from')];
      if (path === null || from === null) throw new UsageError('path, from: expected strings');
      return { path, from };
    }
    case 'upgrade': {
      const { version, program, request } = given;
      const isCommand =
        Array.isArray(program) && program.length > 0 && program.every((each) => typeof each === 'string');
      if (typeof version !== 'string' || !isCommand || typeof request !== 'object' || request === null)
        throw new UsageError('version, program, request: expected a string, strings and an object');
      return { version, program, request };
    }
    case 'watch':
      return { since: numberOf(given, 'since'), follow: given.follow === true, status: given.status === true };
    case 'umount':
      return { timeoutMs: numberOf(given, 'timeoutMs') };
    default:
      return method satisfies never;
  }
}

function pathOf(given: Record<string, unknown>, name = 'path'): string | null {
  const path = given[name] ?? null;
  if (path !== null && typeof path !== 'string') throw new UsageError(`${name}: expected a string`);
  return path;
}

function stringsOf(given: Record<string, unknown>, name: string): readonly string[] {
  const list = given[name];
  const isList = Array.isArray(list) && list.every((each) => typeof each === 'string');
  if (!isList || list.length > PATHS_MAX) throw new UsageError(`${name}: expected at most ${PATHS_MAX} strings`);
  return list;
}

function numberOf(given: Record<string, unknown>, name: string): number | null {
  const value = given[name] ?? null;
  if (value === null || (typeof value === 'number' && value >= 0)) return value;
  throw new UsageError(`${name}: expected a number`);
}

function withoutStack(error: unknown) {
  return { ...errorToRecord(error), stack: undefined, cause: undefined };
}

function send(socket: Socket, line: AnswerLine): void {
  if (socket.destroyed || !socket.writable) return;
  if (socket.writableLength > UNREAD_BYTES_MAX) {
    socket.destroy();
    return;
  }
  socket.write(`${JSON.stringify(line)}\n`);
}
