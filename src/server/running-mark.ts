import { randomBytes } from 'node:crypto';
import { renameSync, rmSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type SocketAddress, socketAddress } from '../base/socket-address.ts';
import { listening } from './listening.ts';

const PREFIX = 'running.';
/**
 * Number of checks for other servers, and milliseconds between them: of two that start together, one withdraws and may
 * exit.
 */
const LOOKS = 10;
const PAUSE_MS = 50;

/**
 * Marks a directory as used by a running server: a listening socket in it, visible to everyone who sees the directory.
 * Others connect to check it, so a socket left by SIGKILL is recognized as stale.
 *
 * Each server publishes its own mark and *then* looks for others: of two that start together, the later one sees the
 * other. Marks are never replaced. A mark becomes visible only when its socket already listens, so one that refuses a
 * connection belongs to an ended process and can be removed.
 *
 * @returns a function that removes the mark; null if another server runs there
 * @throws NodeJS.ErrnoException if the file system supports no sockets, or is not writable
 */
export async function showRunning(directory: string): Promise<(() => Promise<void>) | null> {
  const mark = new RunningMark(directory);
  await mark.make();
  try {
    for (let look = 1; look <= LOOKS; look += 1) {
      if (look > 1) await sleep(PAUSE_MS);
      if (!mark.isShown) {
        if ((await mark.others()).length > 0) continue;
        mark.appear();
      }
      const others = await mark.others();
      if (others.length === 0) return () => mark.remove();
      // Both may see each other: all but the first by name withdraw.
      if (others.some((name) => name < mark.name)) mark.disappear();
    }
  } catch (error) {
    await mark.remove();
    throw error;
  }
  await mark.remove();
  return null;
}

class RunningMark {
  readonly name = `${PREFIX}${randomBytes(8).toString('hex')}`;
  readonly #directory: string;
  readonly #server: Server = createServer((socket) => socket.destroy());
  readonly #address: SocketAddress;
  #isShown = false;

  constructor(directory: string) {
    this.#directory = directory;
    this.#address = socketAddress(this.#hidden);
  }

  /** Not visible to others yet: between bind(2) and listen(2) it would refuse connections like a stale one. */
  async make(): Promise<void> {
    try {
      await listening(this.#server, { path: this.#address.address });
      this.#server.unref();
    } catch (error) {
      this.#address.release();
      throw error;
    }
  }

  get isShown(): boolean {
    return this.#isShown;
  }

  appear(): void {
    renameSync(this.#hidden, this.#shown);
    this.#isShown = true;
  }

  disappear(): void {
    renameSync(this.#shown, this.#hidden);
    this.#isShown = false;
  }

  /** Marks of running servers. Removes stale ones. */
  async others(): Promise<string[]> {
    const living: string[] = [];
    for (const entry of await readdir(this.#directory, { withFileTypes: true })) {
      const { name } = entry;
      // Sockets only: connecting to a regular file of that name is refused too.
      if (!name.startsWith(PREFIX) || name === this.name || !entry.isSocket()) continue;
      const life = await lifeOf(join(this.#directory, name));
      if (life === 'running') living.push(name);
      // Not a missing one: its server may have withdrawn, and may reappear.
      if (life === 'ended') rmSync(join(this.#directory, name), { force: true });
    }
    return living;
  }

  /** Removes the mark permanently. */
  async remove(): Promise<void> {
    for (const path of [this.#shown, this.#hidden]) rmSync(path, { force: true });
    await new Promise((resolve) => void this.#server.close(resolve));
    // libuv unlinks the path that it has bound.
    this.#address.release();
  }

  get #shown(): string {
    return join(this.#directory, this.name);
  }

  get #hidden(): string {
    return join(this.#directory, `.${this.name}`);
  }
}

/** `running` includes servers too busy to accept (EAGAIN) and those that we may not connect to (EACCES). */
async function lifeOf(path: string): Promise<'running' | 'ended' | 'gone'> {
  const { address, release } = socketAddress(path);
  const socket = connect(address);
  try {
    return await new Promise((resolve) => {
      socket.on('connect', () => resolve('running'));
      socket.on('error', ({ code }: NodeJS.ErrnoException) => {
        resolve(code === 'ECONNREFUSED' ? 'ended' : code === 'ENOENT' ? 'gone' : 'running');
      });
    });
  } finally {
    socket.destroy();
    release();
  }
}
