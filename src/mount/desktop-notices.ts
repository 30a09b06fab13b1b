import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import { shellWords } from '../base/shell-word.ts';
import type { MountEvent } from '../control/event-model.ts';
import { eventLine, visible } from './mount-event.ts';
import { REQUEST_VARIABLE } from './mount-request.ts';
import { type ActionPlace, type NoticeAction, noticeActions } from './notice-actions.ts';

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
/** Notices whose buttons work at the same time, a shell and a `notify-send` each. Further ones have no buttons. */
const WAITING_MAX = 8;
/** How long buttons work: the number for timeout(1). */
const WAITING_TIME = '12h';
/** Limit of the wait for it at the end of the process. */
const SETTLING_MS_MAX = 2_000;

/**
 * Notifications of the desktop, by the freedesktop program `notify-send`: one per kind and hour, whatever happens; the next one says
 * how many there were. Without the program, or without a session to show it in, nothing is shown, and nothing fails.
 *
 * What a person can do is offered as buttons, where the program (0.8) and the desktop have them. A shell waits for the answer and runs the
 * command: the last notice of a mount is answered after its end.
 */
export class DesktopNotices {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #command: string;
  readonly #env: Readonly<Record<string, string | undefined>>;
  readonly #place: ActionPlace | null;
  readonly #shown = new Map<Kind, { readonly atMs: number; missed: number }>();
  readonly #running = new Set<Promise<void>>();
  #waiting = 0;
  #isUsable: boolean;

  /** @param deps.place null: notices without buttons @param deps.command `notify-send`; tests have their own */
  constructor(deps: {
    clock: Clock;
    log: Logger;
    env: Readonly<Record<string, string | undefined>>;
    place: ActionPlace | null;
    command?: string;
  }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#env = withoutRequest(deps.env);
    this.#place = deps.place;
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
    const actions = this.#place === null || this.#waiting >= WAITING_MAX ? [] : noticeActions(event, this.#place);
    const text = `${eventLine(event)}${before}${whatToDo(event)}`;
    const script = noticeScript(this.#command, { title: TITLES[event.type], text, actions });
    const shown =
      event.type === 'unmounted' && actions.length > 0 && this.#env.INVOCATION_ID !== undefined
        ? this.#showOutside(script)
        : this.#show(script, actions.length > 0);
    this.#running.add(shown);
    void shown.then(() => this.#running.delete(shown));
  }

  /**
   * Resolves when the notices that were shown so far have reached the desktop, within 2 s. A service manager kills the remaining
   * processes of a unit when its main process ends.
   */
  async settled(): Promise<void> {
    if (this.#running.size === 0) return;
    await Promise.race([Promise.all(this.#running), this.#clock.sleep(SETTLING_MS_MAX)]);
  }

  /** @returns resolves when the notice has reached the desktop, or cannot */
  #show(script: string, hasButtons: boolean): Promise<void> {
    if (hasButtons) this.#waiting++;
    return new Promise<void>((resolve) => {
      const child = this.#start('sh', ['-c', script], (code) => {
        if (hasButtons) this.#waiting--;
        if (code === NO_PROGRAM) {
          this.#isUsable = false;
          this.#log.debug('no desktop notifications');
        }
        shown();
      });
      const inTime = this.#clock.after(SHOWING_MS_MAX, () => endGroup(child));
      const shown = (): void => {
        inTime();
        resolve();
      };
      child.stdout?.once('data', shown);
    });
  }

  /** In a unit of its own: systemd ends all processes of this one with the mount, and with them the button. */
  async #showOutside(script: string): Promise<void> {
    const names = Object.keys(this.#env).filter((name) => /^[A-Za-z_]\w*$/.test(name) && !OF_UNIT.includes(name));
    const words = ['--user', '--collect', '--quiet', ...names.map((name) => `--setenv=${name}`), '--', 'sh', '-c'];
    const code = await new Promise<number | null>((resolve) => {
      this.#start('systemd-run', [...words, script], resolve);
    });
    if (code !== 0) await this.#show(script, true);
  }

  /** A process in a group of its own, which may outlive this one. `onEnd` gets null for a signal or a program that does not exist. */
  #start(program: string, words: readonly string[], onEnd: (code: number | null) => void): ChildProcess {
    const env = { ...this.#env };
    const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'ignore'], detached: true, cwd: '/', env });
    child.once('error', () => onEnd(null));
    child.once('exit', onEnd);
    child.unref();
    (child.stdout as Socket | null)?.unref();
    return child;
  }
}

/** Of sh(1), for a program that it cannot find. */
const NO_PROGRAM = 127;
/** Variables that describe the unit of this process (systemd.exec(5)). */
const OF_UNIT: readonly string[] = ['INVOCATION_ID', 'JOURNAL_STREAM', 'SYSTEMD_EXEC_PID'];

/**
 * The program of sh(1) that shows a notice and runs the command of the button that is pressed. Its output is the notice's number, when
 * the notice has reached the desktop: `notify-send` 0.8.1 keeps that line to its end without stdbuf(1). The mount may have ended by then.
 * A `notify-send` that knows no buttons fails, and the notice is shown without them.
 */
function noticeScript(
  command: string,
  notice: { readonly title: string; readonly text: string; readonly actions: readonly NoticeAction[] },
): string {
  // The names in it are other people's: behind `--` none is a flag, and escaped none is markup (notification spec, "Markup").
  const words = shellWords([notice.title, escaped(notice.text)]);
  const plain = `show -- ${words}`;
  const start = `show() { $limit ${shellWords([command])} --app-name=cfs-mount --icon=folder-remote "$@"; }`;
  if (notice.actions.length === 0) return `${start}\n${plain}`;
  const flags = shellWords(notice.actions.map(({ id, label }) => `--action=${id}=${label}`));
  const choices = notice.actions.map(
    ({ id, command, failure, success }) =>
      `${id}) failure=${shellWords([failure])} success=${shellWords([success ?? ''])}; act() { ${command}; };;`,
  );
  return `${start}
limit='stdbuf -oL timeout --foreground ${WAITING_TIME}'
{ show --print-id ${flags} -- ${words} || echo failed; } | {
  limit=
  read -r number || exit 0
  [ "$number" != failed ] || { ${plain}; exit; }
  trap '' PIPE
  echo "$number" 2>/dev/null
  trap - PIPE
  exec >/dev/null
  read -r action || exit 0
  case $action in
  ${choices.join('\n  ')}
  *) exit;;
  esac
  if why=$(act 2>&1 >/dev/null); then
    [ -z "$success" ] || show -- "$success"
  else
    show -- "$failure" "$(printf '%s\\n' "$why" | head -n 1 | sed 's/&/\\&amp;/g; s/</\\&lt;/g; s/>/\\&gt;/g')"
  fi
}`;
}

function endGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid);
  } catch {
    // It has ended.
  }
}

function isKind(type: MountEvent['type']): type is Kind {
  return Object.hasOwn(TITLES, type);
}

function whatToDo(event: MountEvent): string {
  return event.type === 'unmounted' ? `. To push now, run: cfs-mount ${visible(event.directory)}` : '';
}

/** The programs of the buttons have nothing to do with the request to this process. */
function withoutRequest({
  [REQUEST_VARIABLE]: _request,
  ...env
}: Readonly<Record<string, string | undefined>>): Readonly<Record<string, string | undefined>> {
  return env;
}

/** Whether a session bus exists: without one `notify-send` would try to start it. */
function hasSession(env: Readonly<Record<string, string | undefined>>): boolean {
  if (env.DBUS_SESSION_BUS_ADDRESS) return true;
  return env.XDG_RUNTIME_DIR !== undefined && existsSync(join(env.XDG_RUNTIME_DIR, 'bus'));
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
