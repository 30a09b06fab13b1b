import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ContentStore } from './content-store.ts';

const PAUSE_MS = 2000;

/**
 * Looks after the contents until `signal` is aborted: takes stock once, then collects, evicts and settles layers every few
 * seconds. Never rejects.
 */
export async function keepHouse(
  contents: Pick<ContentStore, 'takeStock' | 'collect' | 'settleLayers'>,
  deps: { readonly clock: Clock; readonly log: Logger },
  signal: AbortSignal,
): Promise<void> {
  await contents.takeStock(signal);
  while (!signal.aborted) {
    try {
      contents.collect();
      await contents.settleLayers(signal);
      await deps.clock.sleep(PAUSE_MS, signal);
    } catch (err) {
      if (signal.aborted) return;
      deps.log.error({ err }, 'looking after the contents failed');
      await deps.clock.sleep(PAUSE_MS, signal).catch(() => {});
    }
  }
}
