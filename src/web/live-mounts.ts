import { homedir } from 'node:os';
import type { Clock } from '../base/clock.ts';
import { programVersion } from '../base/program-version.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { accountNames, readAccountFile } from '../mount/account-file.ts';
import type { LiveMessage } from './live-model.ts';
import { LiveMount } from './live-mount.ts';

/** How often the list of accounts is read. */
const ACCOUNTS_EVERY_MS = 2_000;
const BEAT_EVERY_MS = 15_000;

interface Followed {
  readonly live: LiveMount;
  readonly end: AbortController;
  readonly ended: Promise<void>;
}

type Send = (message: LiveMessage) => void;

/**
 * All accounts with their mounts, for any number of open pages. Only while a page is open, the mounts are connected, once each: a closed
 * page costs them nothing.
 */
export class LiveMounts {
  readonly #deps: { readonly paths: Paths; readonly clock: Clock };
  readonly #pages = new Set<Send>();
  readonly #mounts = new Map<string, Followed>();
  #running: AbortController | null = null;

  constructor(deps: { readonly paths: Paths; readonly clock: Clock }) {
    this.#deps = deps;
  }

  /** Sends everything, then each change, until the signal aborts. */
  async follow(send: Send, signal: AbortSignal): Promise<void> {
    if (this.#running === null) this.#start();
    this.#pages.add(send);
    send(this.#all());
    const { clock } = this.#deps;
    while (!signal.aborted) {
      await clock.sleep(BEAT_EVERY_MS, signal).catch(() => {});
      if (!signal.aborted) send({ type: 'beat' });
    }
    this.#pages.delete(send);
    if (this.#pages.size === 0) this.#stop();
  }

  /** An account was added or removed: it is shown without a delay. */
  accountsChanged(): void {
    if (this.#running !== null) this.#readAccounts();
  }

  #start(): void {
    const running = new AbortController();
    this.#running = running;
    this.#readAccounts();
    const read = (): void => {
      if (running.signal.aborted) return;
      this.#readAccounts();
      this.#deps.clock.after(ACCOUNTS_EVERY_MS, read);
    };
    this.#deps.clock.after(ACCOUNTS_EVERY_MS, read);
  }

  /** What is known stays: a page that is loaded again shows the same history. */
  #stop(): void {
    this.#running?.abort();
    this.#running = null;
    for (const { end } of this.#mounts.values()) end.abort();
  }

  #readAccounts(): void {
    const names = accountNames(this.#deps.paths);
    const gone = [...this.#mounts.keys()].filter((name) => !names.includes(name));
    for (const name of gone) {
      this.#mounts.get(name)?.end.abort();
      this.#mounts.delete(name);
    }
    const added = names.filter((name) => !this.#mounts.has(name));
    for (const name of names) if (this.#mounts.get(name)?.end.signal.aborted !== false) this.#follow(name);
    if (gone.length + added.length > 0) this.#send(this.#all());
  }

  #follow(name: string): void {
    const before = this.#mounts.get(name);
    const live = before?.live ?? this.#newMount(name);
    const end = new AbortController();
    // One connection at a time: the previous one ends first.
    const ended = (before?.ended ?? Promise.resolve()).then(() => live.follow(end.signal));
    this.#mounts.set(name, { live, end, ended });
  }

  #newMount(name: string): LiveMount {
    const { username, origin } = readAccountFile(accountPaths(this.#deps.paths, name).accountFile);
    return new LiveMount({ ...this.#deps, send: (message) => this.#send(message) }, name, { username, origin });
  }

  #all(): LiveMessage {
    const accounts = [...this.#mounts.values()].map(({ live }) => live.account);
    return { type: 'all', version: programVersion(), home: homedir(), accounts };
  }

  #send(message: LiveMessage): void {
    for (const send of this.#pages) send(message);
  }
}
