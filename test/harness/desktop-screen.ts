import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { expect } from 'vitest';
import { type CommandResult, runCommand } from './command.ts';
import { missingFile, missingPrograms } from './requirement.ts';

const POLL = { timeout: 60_000, interval: 100 };

export function missingForNautilus(): string | null {
  return (
    missingPrograms('nautilus', 'openbox', 'Xvfb', 'xdotool', 'dbus-daemon') ?? missingFile('/usr/libexec/gvfsd-trash') // Nautilus has no trash without it
  );
}

/** A screen, a session bus and a home of their own, with the file manager of GNOME. The test presses its keys. */
export class DesktopScreen {
  /** Settings, caches and data of the session's programs. */
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly #children: ChildProcess[];
  /** The file managers of the windows. */
  readonly #managers: ChildProcess[] = [];
  #extensions: string | null = null;
  #managerEnv: Readonly<Record<string, string>> = {};

  private constructor(home: string, env: Readonly<Record<string, string | undefined>>, children: ChildProcess[]) {
    this.home = home;
    this.env = env;
    this.#children = children;
  }

  /**
   * The file manager loads the extensions of this folder from now on, and not those of the system. It does so in a mount namespace of its
   * own, which follows the mounts of the machine: as root.
   */
  withExtensions(folder: string): void {
    this.#extensions = folder;
  }

  /** The file manager has this in its environment from now on. */
  withManagerEnv(env: Readonly<Record<string, string>>): void {
    this.#managerEnv = env;
  }

  static async start(): Promise<DesktopScreen> {
    const home = mkdtempSync(join(tmpdir(), 'cfs-screen-'));
    for (const folder of ['config', 'cache', 'data', 'run']) mkdirSync(join(home, folder), { mode: 0o700 });
    mkdirSync(join(home, 'config/gtk-4.0'));
    writeFileSync(join(home, 'config/gtk-4.0/settings.ini'), '[Settings]\ngtk-enable-animations=0\n');
    // The indexer of GNOME outlives its session for some time.
    const services = join(home, 'data/dbus-1/services');
    mkdirSync(services, { recursive: true });
    for (const name of ['org.freedesktop.Tracker3.Miner.Files', 'org.freedesktop.LocalSearch3'])
      writeFileSync(join(services, `${name}.service`), `[D-BUS Service]\nName=${name}\nExec=/bin/false\n`);
    // -noreset: without it the server begins anew whenever its last client leaves, and refuses a client that connects just then.
    const screen = ['-displayfd', '1', '-screen', '0', '1280x800x24', '-noreset', '-nolisten', 'tcp', '-fbdir', home];
    const display = spawn('Xvfb', screen, { stdio: ['ignore', 'pipe', 'ignore'] });
    const env = {
      HOME: home,
      XDG_RUNTIME_DIR: join(home, 'run'),
      XDG_CONFIG_HOME: join(home, 'config'),
      XDG_CACHE_HOME: join(home, 'cache'),
      XDG_DATA_HOME: join(home, 'data'),
      DISPLAY: `:${await firstLine(display.stdout)}`,
      WAYLAND_DISPLAY: undefined,
      GVFS_DISABLE_FUSE: '1',
      GSETTINGS_BACKEND: 'memory',
      // Frames that a busy processor draws by OpenGL come before everything else in GTK: a spinner would turn, and nothing would load.
      GSK_RENDERER: 'cairo',
      GTK_A11Y: 'none',
      LC_ALL: 'C.UTF-8',
    };
    // Services that it starts get this environment.
    const options = ['--session', '--nofork', '--print-address=1'];
    const bus = spawn('dbus-daemon', options, { stdio: ['ignore', 'pipe', 'ignore'], env: { ...process.env, ...env } });
    const DBUS_SESSION_BUS_ADDRESS = await firstLine(bus.stdout);
    // Without a window manager GTK 4 takes no keys.
    const manager = spawn('openbox', [], { stdio: 'ignore', cwd: '/', env: { ...process.env, ...env } });
    return new DesktopScreen(home, { ...env, DBUS_SESSION_BUS_ADDRESS }, [manager, bus, display]);
  }

  /** Opens a folder in a window. @returns when the window is there */
  async open(folder: string, name: string): Promise<void> {
    const [program = '', ...args] = [...this.#inNamespace(), 'nautilus', '--new-window', folder];
    const child = spawn(program, args, {
      stdio: 'ignore',
      cwd: '/',
      env: { ...process.env, ...this.env, ...this.#managerEnv },
    });
    this.#children.unshift(child);
    this.#managers.push(child);
    await expect.poll(() => this.windows(), POLL).toContain(name);
  }

  /** The titles of all windows that can be seen. */
  async windows(): Promise<readonly string[]> {
    const script = 'for window in $(xdotool search --onlyvisible --name .); do xdotool getwindowname "$window"; done';
    const { stdout } = await this.run(['sh', '-c', script]);
    return stdout.split('\n').filter((line) => line !== '');
  }

  /** Brings the window to the front, clicks into its empty corner, and presses the keys. */
  async press(window: string, ...keys: readonly string[]): Promise<void> {
    const script = [
      'id=$(xdotool search --onlyvisible --name "^$1\\$" | tail -1); shift',
      'xdotool windowactivate --sync "$id"; eval "$(xdotool getwindowgeometry --shell "$id")"',
      'xdotool mousemove $((X + WIDTH - 60)) $((Y + HEIGHT - 60)) click 1; sleep 0.5',
      'for key; do xdotool key "$key"; sleep 0.5; done',
    ];
    await this.run(['sh', '-c', script.join('\n'), 'sh', window, ...keys]);
  }

  /** A program of the session, whatever its exit code. */
  run(argv: readonly string[], timeoutMs?: number): Promise<CommandResult> {
    return runCommand(argv, { env: this.env, anyExitCode: true, ...(timeoutMs !== undefined && { timeoutMs }) });
  }

  /** Closes all windows: the file manager ends with the last one, and sees later mounts when it starts again. */
  async closeAll(): Promise<void> {
    for (const window of await this.windows()) await this.press(window, 'ctrl+w');
    await expect.poll(() => this.windows(), POLL).toEqual([]);
    await expect.poll(() => this.#managers.every(hasEnded), POLL).toBe(true);
    this.#managers.length = 0;
  }

  /** How many dots of the screen have nearly this colour. */
  dots(red: number, green: number, blue: number): number {
    // xwd(1): big-endian words; the header's size is the first, the number of its colours the 20th. Four bytes for each dot.
    const picture = readFileSync(join(this.home, 'Xvfb_screen0'));
    const from = picture.readUInt32BE(0) + picture.readUInt32BE(19 * 4) * 12;
    let count = 0;
    for (let at = from; at + 3 < picture.byteLength; at += 4) {
      const isNear = (offset: number, value: number): boolean => Math.abs((picture[at + offset] ?? 0) - value) < 24;
      if (isNear(0, blue) && isNear(1, green) && isNear(2, red)) count++;
    }
    return count;
  }

  async dispose(): Promise<void> {
    for (const child of this.#children) {
      if (hasEnded(child)) continue;
      child.kill();
      await once(child, 'exit');
    }
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }

  /** The words before the name of the file manager. */
  #inNamespace(): readonly string[] {
    if (this.#extensions === null) return [];
    const place = spawnSync('pkg-config', ['--variable=extensiondir', 'libnautilus-extension-4'], { encoding: 'utf8' });
    const script = 'mount --bind "$0" "$1" && shift && exec "$@"';
    return [
      ...['unshare', '--mount', '--propagation', 'slave', 'sh', '-c', script],
      ...[this.#extensions, place.stdout.trim()],
    ];
  }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

async function firstLine(output: Readable): Promise<string> {
  const [line] = (await once(createInterface({ input: output }), 'line')) as [string];
  return line;
}
