import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ContentStore } from './content-store.ts';

const PAUSE_MS = 2_000;
/** Without work: only other programs that fill the disk make any. Each pass wakes the processor of an idle machine. */
const IDLE_PAUSE_MS = 5_000;
/** Pause between two attempts to take stock. */
const STOCK_BACKOFF = { firstMs: 10_000, maxMs: 10 * 60_000 };

/**
 * Maintains the contents until `signal` is aborted: takes stock once, then collects, evicts and merges layers every few
 * seconds, less often while there is nothing to do. A failed stock-taking is retried, because eviction waits for it. Never rejects.
 */
export async function maintainContents(
  contents: Pick<ContentStore, 'takeStock' | 'collect' | 'mergeLayers' | 'isUnsettled'>,
  deps: { readonly clock: Clock; readonly log: Logger },
  signal: AbortSignal,
): Promise<void> {
  const { clock, log } = deps;
  let isStockTaken = await contents.takeStock(signal);
  let attempts = 1;
  const nextStockMs = (): number => clock.elapsedMs() + backoffMs(attempts, clock.random(), STOCK_BACKOFF);
  let stockAtMs = nextStockMs();
  while (!signal.aborted) {
    try {
      if (!isStockTaken && clock.elapsedMs() >= stockAtMs) {
        isStockTaken = await contents.takeStock(signal);
        attempts++;
        stockAtMs = nextStockMs();
      }
      const isMore = contents.collect();
      await contents.mergeLayers(signal);
      const isWork = !isStockTaken || isMore || contents.isUnsettled();
      await clock.sleep(isWork ? PAUSE_MS : IDLE_PAUSE_MS, signal);
    } catch (err) {
      if (signal.aborted) return;
      log.error({ err }, 'maintenance of the contents failed');
      await clock.sleep(PAUSE_MS, signal).catch(() => {});
    }
  }
}
