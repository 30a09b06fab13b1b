import { ifSound } from '../../src/store/node-table.ts';
import type { IntentRecord, StoreReader, StoreWriter } from '../../src/store/tables.ts';

/**
 * Checks a store after each record that is written from here on: a process may die after any of them. Also checks that no node loses the
 * resource that its operation in flight changes, which recovery would cope with.
 *
 * @returns the findings of the first record that has any, each with all intents and the code that wrote the record; grows during the test
 */
export function checkEachRecord(
  store: StoreWriter,
  check: (store: StoreReader) => Iterable<string>,
): readonly string[] {
  const findings: string[] = [];
  const transact = store.transact.bind(store);
  // Tests count the reads of what they test.
  const reader: StoreReader = { get: store.get.bind(store), scan: store.scan.bind(store), all: store.all.bind(store) };
  store.transact = (change, kind) => {
    const result = transact(change, kind);
    if (findings.length > 0) return result;
    // Tests damage rows on purpose.
    const found = ifSound(() => [...check(reader), ...strayOperations(reader)]) ?? [];
    if (found.length === 0) return result;
    const intents = [...reader.all('intent')].map(([id, intent]) => `intent ${id}: ${JSON.stringify(intent)}`);
    const writer = new Error('written').stack?.split('\n').slice(2, 12) ?? [];
    findings.push(...found.map((finding) => [finding, ...intents, ...writer].join('\n')));
    return result;
  };
  return findings;
}

const CHANGES: ReadonlySet<IntentRecord['action']> = new Set(['fill', 'new-version', 'relocate', 'trash']);

function* strayOperations(store: StoreReader): Generator<string> {
  for (const [id, { owner, phase, action, resource }] of store.all('intent')) {
    if (phase === 'abandoned' || resource === null || !CHANGES.has(action)) continue;
    if (store.get('resource', resource) === undefined)
      yield `intent ${id} of node ${owner} (${action}) changes a resource that belongs to no node`;
  }
}
