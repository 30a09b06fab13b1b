import { randomBytes } from 'node:crypto';
import { renameSync, rmSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type SocketAddress, socketAddress } from '../base/socket-address.ts';
import { listening } from './listening.ts';

const PREFIX = 'running.';
/** So often, so many milliseconds apart, others are looked for: of two that start at once one steps back, and may be gone. */
const LOOKS = 10;
const PAUSE_MS = 50;

/**
 * Shows that a server runs on a directory, to everybody who sees the directory: by a socket in it that is listened to. Others are told by
 * connecting, so what SIGKILL left is known for what it is.
 *
 * Each server has a mark of its own, appears, and looks for others *then*: of two that start at once the later one to appear sees the
 * other, and no mark ever takes the place of another. A mark appears when its socket is listened to already: one that refuses is of a
 * process that ended, and can be removed.
 *
 * @returns what takes the mark away; null when another server runs there
 * @throws NodeJS.ErrnoException where the file system takes no sockets, or nothing at all
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
      // They may see this one as well, and wait for it: all but the first by name step back.
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

  /** Nobody looks at it yet: between bind(2) and listen(2) it refuses as one that was left behind does. */
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

  /** Marks of servers that run. Those of others are removed. */
  async others(): Promise<string[]> {
    const living: string[] = [];
    for (const entry of await readdir(this.#directory, { withFileTypes: true })) {
      const { name } = entry;
      // A log that is called so refuses as well.
      if (!name.startsWith(PREFIX) || name === this.name || !entry.isSocket()) continue;
      const life = await lifeOf(join(this.#directory, name));
      if (life === 'running') living.push(name);
      // Not what is gone: it may have stepped back, and appear again.
      if (life === 'ended') rmSync(join(this.#directory, name), { force: true });
    }
    return living;
  }

  /** For ever. */
  async remove(): Promise<void> {
    for (const path of [this.#shown, this.#hidden]) rmSync(path, { force: true });
    await new Promise((resolve) => void this.#server.close(resolve));
    // libuv removes what it has bound, by that name.
    this.#address.release();
  }

  get #shown(): string {
    return join(this.#directory, this.name);
  }

  get #hidden(): string {
    return join(this.#directory, `.${this.name}`);
  }
}

/** `running` is also one that is too busy to take the connection (EAGAIN), or not ours to ask (EACCES). */
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
