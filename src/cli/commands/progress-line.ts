import type { Clock } from '../../base/clock.ts';
import { formatBytes, formatDuration } from '../../config/units.ts';
import type { SyncProgress } from '../../control/status-model.ts';
import type { CommandOutput } from '../command-output.ts';

const BAR_WIDTH = 20;
/** The time span over which the rate is averaged. */
const WINDOW_MS = 10_000;
/** Without a terminal: the delay of the first line, and the interval of the next ones. */
const PLAIN_EVERY_MS = 5_000;

/** The progress of an operation. */
type Moved = Omit<SyncProgress, 'waitsFor'>;

/** The transfer rate and the remaining time; null while unknown. */
export interface Pace {
  readonly bytesPerSecond: number | null;
  readonly leftMs: number | null;
}

/** Shows the progress of a push: one line that is updated at a terminal, occasional plain lines elsewhere. */
export class ProgressLine {
  readonly #clock: Clock;
  readonly #output: CommandOutput;
  readonly #hint: string | null;
  /** The last printed reason for a stall. */
  #waitsFor: string | null = null;
  readonly #samples: { readonly atMs: number; readonly doneBytes: number }[] = [];
  #plainMs: number;

  /** @param deps.hint printed with the reason at the start of each outage; null: neither is printed */
  constructor(deps: { clock: Clock; output: CommandOutput; hint: string | null }) {
    this.#clock = deps.clock;
    this.#output = deps.output;
    this.#hint = deps.hint;
    this.#plainMs = deps.clock.elapsedMs() + PLAIN_EVERY_MS;
  }

  show(progress: SyncProgress): void {
    this.#sayWhatIsWaitedFor(progress.waitsFor);
    const nowMs = this.#clock.elapsedMs();
    this.#samples.push({ atMs: nowMs, doneBytes: progress.doneBytes });
    while (this.#samples.length > 2 && nowMs - (this.#samples[0]?.atMs ?? nowMs) > WINDOW_MS) this.#samples.shift();
    const pace = paceOf(this.#samples, progress);
    if (this.#output.redraw !== null) {
      this.#output.redraw(`${progressBar(progress)} ${progressText(progress, pace)}`);
    } else if (nowMs >= this.#plainMs) {
      this.#plainMs = nowMs + PLAIN_EVERY_MS;
      this.#output.warn(`${progressText(progress, pace)}\n`);
    }
  }

  /** Prints the reason once per outage, because a stalled bar does not explain itself. Mounts of older versions do not send it. */
  #sayWhatIsWaitedFor(waitsFor: string | null = null): void {
    const isNews = waitsFor !== null && waitsFor !== this.#waitsFor;
    this.#waitsFor = waitsFor;
    if (!isNews || this.#hint === null) return;
    this.#output.redraw?.('');
    this.#output.warn(`${waitsFor}: waiting; ${this.#hint}\n`);
  }

  /** Erases the line. */
  end(): void {
    this.#output.redraw?.('');
  }
}

/** The rate of the samples, which are in order of time. */
export function paceOf(
  samples: readonly { readonly atMs: number; readonly doneBytes: number }[],
  progress: Moved,
): Pace {
  const [first, last] = [samples[0], samples.at(-1)];
  const tookMs = (last?.atMs ?? 0) - (first?.atMs ?? 0);
  const bytes = (last?.doneBytes ?? 0) - (first?.doneBytes ?? 0);
  if (tookMs <= 0 || bytes <= 0) return { bytesPerSecond: null, leftMs: null };
  const bytesPerSecond = (bytes / tookMs) * 1000;
  return { bytesPerSecond, leftMs: ((progress.totalBytes - progress.doneBytes) / bytesPerSecond) * 1000 };
}

/** `[########------------]`: by bytes, or by changes if no change has bytes. */
export function progressBar(progress: Moved): string {
  const full = Math.round(BAR_WIDTH * shareOf(progress));
  return `[${'#'.repeat(full)}${'-'.repeat(BAR_WIDTH - full)}]`;
}

/** `3 of 10 changes, 1.2 MiB of 8 MiB, 410 KiB/s, 17 s left`; what is not known is left out. */
export function progressText(progress: Moved, pace: Pace = { bytesPerSecond: null, leftMs: null }): string {
  const parts = [`${progress.doneChanges} of ${progress.totalChanges} changes`];
  if (progress.totalBytes > 0) parts.push(`${formatBytes(progress.doneBytes)} of ${formatBytes(progress.totalBytes)}`);
  if (pace.bytesPerSecond !== null) parts.push(`${formatBytes(Math.round(pace.bytesPerSecond))}/s`);
  if (pace.leftMs !== null) parts.push(`${formatDuration(Math.max(0, pace.leftMs))} left`);
  return parts.join(', ');
}

function shareOf({ doneBytes, totalBytes, doneChanges, totalChanges }: Moved): number {
  const [done, total] = totalBytes > 0 ? [doneBytes, totalBytes] : [doneChanges, totalChanges];
  return total === 0 ? 1 : Math.min(1, Math.max(0, done / total));
}
