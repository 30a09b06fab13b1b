import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import { expect } from 'vitest';
import { missingFile, missingPrograms } from './requirement.ts';

const PYTHON = '/usr/bin/python3';
const SERVICES = new URL('./desktop-session.py', import.meta.url).pathname;

export interface ShownNotice {
  readonly number: number;
  readonly title: string;
  readonly text: string;
  /** Labels by id. */
  readonly actions: Readonly<Record<string, string>>;
}

type Message =
  | { readonly kind: 'ready' }
  | ({ readonly kind: 'notice' } & ShownNotice)
  | { readonly kind: 'files'; readonly urls: readonly string[] };

export function missingForSession(): string | null {
  return missingPrograms('dbus-daemon', 'dbus-send', 'notify-send') ?? missingFile('/usr/lib/python3/dist-packages/gi');
}

/** A session bus of its own, with the services of a desktop: notices whose buttons the test presses, and a file manager. */
export class DesktopSession {
  /** For the environment of its programs. */
  readonly env: { readonly DBUS_SESSION_BUS_ADDRESS: string };
  /** What was shown so far, in order. */
  readonly notices: ShownNotice[] = [];
  /** Of each call to the file manager, the URLs that it was to select. */
  readonly selected: (readonly string[])[] = [];
  readonly #bus: ChildProcessWithoutNullStreams;
  #services!: ChildProcessWithoutNullStreams;

  private constructor(bus: ChildProcessWithoutNullStreams, address: string) {
    this.#bus = bus;
    this.env = { DBUS_SESSION_BUS_ADDRESS: address };
  }

  /** @param capabilities of the notices: `actions` means buttons */
  static async start(capabilities: readonly string[] = ['body', 'actions']): Promise<DesktopSession> {
    const bus = spawn('dbus-daemon', ['--session', '--nofork', '--print-address=1'], { stdio: 'pipe' });
    const session = new DesktopSession(bus, await firstLine(createInterface({ input: bus.stdout })));
    session.#services = spawn(PYTHON, [SERVICES, ...capabilities], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, ...session.env },
    }) as unknown as ChildProcessWithoutNullStreams;
    const lines = createInterface({ input: session.#services.stdout });
    lines.on('line', (line) => session.#received(JSON.parse(line) as Message));
    await firstLine(lines);
    return session;
  }

  /** @returns the notice with this index, once it is shown */
  async notice(index: number): Promise<ShownNotice> {
    await expect.poll(() => this.notices.length, { timeout: 30_000, interval: 20 }).toBeGreaterThan(index);
    return this.notices[index] as ShownNotice;
  }

  /** A person presses a button; the notice closes. */
  press({ number }: ShownNotice, action: string): void {
    this.#services.stdin.write(`${number} ${action}\n`);
  }

  async dispose(): Promise<void> {
    for (const child of [this.#services, this.#bus]) {
      if (child.exitCode !== null) continue;
      child.kill();
      await once(child, 'exit');
    }
  }

  #received(message: Message): void {
    if (message.kind === 'notice') this.notices.push(message);
    if (message.kind === 'files') this.selected.push(message.urls);
  }
}

async function firstLine(lines: Interface): Promise<string> {
  const [line] = (await once(lines, 'line')) as [string];
  return line;
}
