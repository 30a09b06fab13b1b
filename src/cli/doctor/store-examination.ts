import { type Clock, systemClock } from '../../base/clock.ts';
import { StorageError, systemCodeOf, UsageError } from '../../base/errors.ts';
import { silentLogger } from '../../base/log.ts';
import { checkBytes, checkStore } from '../../bytes/consistency-check.ts';
import { ContentStore } from '../../bytes/content-store.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { Store } from '../../store/environment.ts';

/** `bytes`: also compares every block with its checksum. */
export type ExaminationDepth = 'structure' | 'bytes';

/** The result of an examination. `opened`: the numbers of checked entries and contents, unpushed changes, and the first faults. */
export type StoreExamination =
  | {
      readonly state: 'opened';
      readonly nodes: number;
      readonly contents: number;
      /** Changes that the service does not have, parked ones too. */
      readonly pending: number;
      /** How many there are. */
      readonly findings: number;
      /** The first SHOWN_MAX of them. */
      readonly shown: readonly string[];
    }
  /** `unopened`: a system error, which is no fault of the store. */
  | { readonly state: 'in-use' | 'newer' | 'unopened' | 'broken'; readonly reason: string };

/** Further findings of one store are only counted. */
const SHOWN_MAX = 100;
/** The number of damaged rows that a sentence names. */
const NAMED_MAX = 5;

/** Reads a store that no mount has open. A store that cannot be opened is a result, not an error. */
export async function examineStore(
  directory: string,
  depth: ExaminationDepth,
  clock: Clock = systemClock,
): Promise<StoreExamination> {
  let store: Store;
  try {
    store = await Store.open({ directory, clock, log: silentLogger });
  } catch (error) {
    return unopened(error, directory);
  }
  try {
    // The checks would stop at a damaged row.
    const damaged = [...store.damagedRows()].filter(({ table }) => table !== 'inline');
    const lost = damaged.filter(({ table }) => table !== 'blocks');
    if (lost.length > 0) return { state: 'broken', reason: damageOf(lost.map(({ row }) => row)) };
    // Nothing is fetched or evicted, so these limits have no effect.
    const options = { inlineMaxBytes: 16 * 1024, cacheBytes: Number.MAX_SAFE_INTEGER };
    const contents = new ContentStore({ store, directory, clock, log: silentLogger, options });
    // A damaged block map is no fault: its blocks are fetched again.
    const shown = damaged.slice(0, SHOWN_MAX).map(({ row }) => `row ${row} is damaged`);
    let findings = damaged.length;
    const checks = depth === 'bytes' ? [checkStore(store), checkBytes(store, contents)] : [checkStore(store)];
    for (const check of checks) {
      for (const finding of check) if (++findings <= SHOWN_MAX) shown.push(finding);
    }
    contents.close();
    return {
      state: 'opened',
      nodes: countOf(store.all('node')),
      contents: countOf(store.all('content')),
      pending: countOf(store.all('dirty')),
      findings,
      shown,
    };
  } catch (error) {
    return { state: stateOf(error), reason: `it cannot be read: ${messageOf(error)}` };
  } finally {
    await store.close();
  }
}

function unopened(error: unknown, directory: string): StoreExamination {
  if (error instanceof UsageError && error.exitCode === exitCode('alreadyMounted'))
    return { state: 'in-use', reason: error.message };
  if (error instanceof UsageError) return { state: 'newer', reason: error.message };
  return { state: stateOf(error), reason: `the store in ${visible(directory)} cannot be opened: ${messageOf(error)}` };
}

/** A missing file, or one of another kind, is damage. Any other system error may be gone at a later start. */
const DAMAGE_CODES: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ELOOP']);

/** Lack of space, descriptors or permission: the store can be opened once that is over. */
function stateOf(error: unknown): 'unopened' | 'broken' {
  for (let at = error; at instanceof Error; at = at.cause) {
    const code = systemCodeOf(at);
    if (typeof code === 'string' && /^E[A-Z0-9]+$/.test(code)) return DAMAGE_CODES.has(code) ? 'broken' : 'unopened';
    if (at instanceof StorageError && at.full) return 'unopened';
  }
  return 'broken';
}

function damageOf(rows: readonly string[]): string {
  const more = rows.length > NAMED_MAX ? `, and ${rows.length - NAMED_MAX} more` : '';
  return `${rows.length} of its rows have a wrong checksum: ${rows.slice(0, NAMED_MAX).join(', ')}${more}`;
}

function countOf(rows: Iterable<unknown>): number {
  let count = 0;
  for (const _ of rows) count++;
  return count;
}

function messageOf(error: unknown): string {
  return String(error instanceof Error ? error.message : error).split('\n', 1)[0] ?? '';
}
