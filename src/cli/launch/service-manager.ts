import { sendDatagram } from '../../base/native.ts';
import type { StoredMount } from '../../mount/launch.ts';

/** The first descriptor of a service manager. */
const LISTEN_FDS_START = 3;
/** Node fires timers of more than 24 days continuously. */
const SIGN_MS_MAX = 3_600_000;

/**
 * The service manager that started this process and expects notifications (sd_notify(3), systemd's `Type=notify`). They come from
 * the process that it started, so `NotifyAccess=main` is enough, and messages of other processes are ignored.
 */
export class ServiceManager {
  /** Interval of the watchdog notifications, ms: at most half of systemd's limit; null: no watchdog. */
  readonly signEveryMs: number | null;
  readonly #socketPath: string;

  private constructor(socketPath: string, signEveryMs: number | null) {
    this.#socketPath = socketPath;
    this.signEveryMs = signEveryMs;
  }

  /** From NOTIFY_SOCKET and WATCHDOG_USEC; null without a service manager. */
  static of(env: Readonly<Record<string, string | undefined>>): ServiceManager | null {
    const path = env.NOTIFY_SOCKET ?? '';
    if (!/^[/@]./.test(path)) return null;
    const isForUs = env.WATCHDOG_PID === undefined || env.WATCHDOG_PID === String(process.pid);
    const microseconds = isForUs ? Number(env.WATCHDOG_USEC ?? 0) : 0;
    return new ServiceManager(path, microseconds > 0 ? Math.min(microseconds / 2000, SIGN_MS_MAX) : null);
  }

  /** The running mount that this service left behind; null if there is none. sd_listen_fds(3) */
  static storedMount(env: Readonly<Record<string, string | undefined>>): StoredMount | null {
    if (env.LISTEN_PID !== String(process.pid)) return null;
    const names = (env.LISTEN_FDNAMES ?? '').split(':');
    const [device, memory] = [names.indexOf('cfs-device'), names.indexOf('cfs-memory')];
    return device < 0 || memory < 0 ? null : { device: LISTEN_FDS_START + device, memory: LISTEN_FDS_START + memory };
  }

  /** @param mainPid the process that is the service from now on; null: this one */
  ready(status: string, mainPid: number | null): void {
    this.#send(['READY=1', `STATUS=${status}`, ...(mainPid === null ? [] : [`MAINPID=${mainPid}`])]);
  }

  stopping(status: string): void {
    this.#send(['STOPPING=1', `STATUS=${status}`]);
  }

  alive(): void {
    this.#send(['WATCHDOG=1']);
  }

  /** Ignores a missing manager. */
  #send(lines: readonly string[]): void {
    try {
      sendDatagram(this.#socketPath, lines.map((line) => line.replaceAll('\n', ' ')).join('\n'));
    } catch {
      // ECONNREFUSED, ENOENT
    }
  }
}
