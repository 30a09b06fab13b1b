import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { MountEvent } from '../control/event-model.ts';
import { eventLine, visible } from './mount-event.ts';

/** Events that are shown as desktop notifications, with their titles. */
const TITLES = {
  parked: 'The cloud rejected a change',
  'held-back': 'Files removed from the cloud are kept here',
  'taken-back': 'The cloud has lost a version of a file',
  conflict: 'A file was changed in two places',
  'quota-low': 'The cloud is nearly full',
  'sign-in-needed': 'Sign in to the cloud again',
  unmounted: 'Changes are not in the cloud yet',
} as const satisfies Partial<Record<MountEvent['type'], string>>;

type Kind = keyof typeof TITLES;

const PAUSE_MS = 3_600_000;
/** Limit for a `notify-send` whose notification service hangs. */
const SHOWING_MS_MAX = 10_000;
/** Limit of the wait for it at the end of the process. */
const SETTLING_MS_MAX = 2_000;

/**
 * Notifications of the desktop, by the freedesktop program `notify-send`: one per kind and hour, whatever happens; the next one says
 * how many there were. Without the program, or without a session to show it in, nothing is shown, and nothing fails.
 */
export class DesktopNotices {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #command: string;
  readonly #shown = new Map<Kind, { readonly atMs: number; missed: number }>();
  readonly #running = new Set<Promise<void>>();
  #isUsable: boolean;

  /** @param deps.command `notify-send`; tests have their own */
  constructor(deps: {
    clock: Clock;
    log: Logger;
    env: Readonly<Record<string, string | undefined>>;
    command?: string;
  }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#command = deps.command ?? 'notify-send';
    this.#isUsable = hasSession(deps.env);
  }

  /** Shows an event of a kind that is shown; an unmount only if changes stay here. Returns immediately and never fails. */
  show(event: MountEvent): void {
    if (!this.#isUsable || !isKind(event.type)) return;
    if (event.type === 'unmounted' && event.pending === 0) return;
    const nowMs = this.#clock.elapsedMs();
    const last = this.#shown.get(event.type);
    if (last !== undefined && nowMs - last.atMs < PAUSE_MS) {
      last.missed++;
      return;
    }
    this.#shown.set(event.type, { atMs: nowMs, missed: 0 });
    const missed = last?.missed ?? 0;
    const before = missed === 0 ? '' : ` (and ${missed} more since the last notice)`;
    this.#show(TITLES[event.type], `${eventLine(event)}${before}${whatToDo(event)}`);
  }

  /**
   * Resolves when the notices that were shown so far have reached the desktop, within 2 s. A service manager kills the remaining
   * processes of a unit when its main process ends.
   */
  async settled(): Promise<void> {
    if (this.#running.size === 0) return;
    await Promise.race([Promise.all(this.#running), this.#clock.sleep(SETTLING_MS_MAX)]);
  }

  #show(title: string, text: string): void {
    // The names in it are other people's: behind `--` none is a flag, and escaped none is markup (notification spec, "Markup").
    const words = ['--app-name=cfs-mount', '--icon=folder-remote', '--', title, escaped(text)];
    const child = spawn(this.#command, words, { stdio: 'ignore', timeout: SHOWING_MS_MAX });
    const shown = new Promise<void>((resolve) => {
      child.on('error', (err) => {
        this.#isUsable = false;
        this.#log.debug({ err }, 'no desktop notifications');
        resolve();
      });
      child.on('exit', () => resolve());
    });
    this.#running.add(shown);
    void shown.then(() => this.#running.delete(shown));
    child.unref();
  }
}

function isKind(type: MountEvent['type']): type is Kind {
  return Object.hasOwn(TITLES, type);
}

function whatToDo(event: MountEvent): string {
  return event.type === 'unmounted' ? `. To push now, run: cfs-mount ${visible(event.directory)}` : '';
}

/** Whether a session bus exists: without one `notify-send` would try to start it. */
function hasSession(env: Readonly<Record<string, string | undefined>>): boolean {
  if (env.DBUS_SESSION_BUS_ADDRESS) return true;
  return env.XDG_RUNTIME_DIR !== undefined && existsSync(join(env.XDG_RUNTIME_DIR, 'bus'));
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
