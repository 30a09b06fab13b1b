import type { VersionUrl } from '../base/vocabulary.ts';
import type { StoreReader, Transaction } from './tables.ts';

/** In table `meta`: the URLs as JSON, oldest first. */
const KEY = 'discarded-versions';

/** Versions that this client began and gave up. Each may have arrived complete; after a restart it must not count as a foreign one. */
export function discardedVersions(store: Pick<StoreReader, 'get'>): readonly VersionUrl[] {
  return JSON.parse(String(store.get('meta', KEY) ?? '[]')) as VersionUrl[];
}

export function writeDiscardedVersions(tx: Transaction, versions: readonly VersionUrl[]): void {
  tx.put('meta', KEY, JSON.stringify(versions));
}
