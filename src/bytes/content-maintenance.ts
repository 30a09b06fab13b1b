import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ContentStore } from './content-store.ts';

const PAUSE_MS = 2000;
/** Pause between two attempts to take stock. */
const STOCK_BACKOFF = { firstMs: 10_000, maxMs: 10 * 60_000 };

/**
 * Maintains the contents until `signal` is aborted: takes stock once, then collects, evicts and merges layers every few
 * seconds. A failed stock-taking is retried, because eviction waits for it. Never rejects.
 */
export async function maintainContents(
  contents: Pick<ContentStore, 'takeStock' | 'collect' | 'mergeLayers'>,
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
      contents.collect();
      await contents.mergeLayers(signal);
      await clock.sleep(PAUSE_MS, signal);
    } catch (err) {
      if (signal.aborted) return;
      log.error({ err }, 'maintenance of the contents failed');
      await clock.sleep(PAUSE_MS, signal).catch(() => {});
    }
  }
}
