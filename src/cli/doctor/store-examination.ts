import { type Clock, systemClock } from '../../base/clock.ts';
import { StorageError, systemCodeOf, UsageError } from '../../base/errors.ts';
import { silentLogger } from '../../base/log.ts';
import { checkBytes, checkStore } from '../../bytes/consistency-check.ts';
import { ContentStore } from '../../bytes/content-store.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { Store } from '../../store/environment.ts';

/** `bytes`: every block is compared with its mark as well. */
export type ExaminationDepth = 'structure' | 'bytes';

/** What an examination came to. `opened`: entries and contents looked at, what was not pushed yet, and the first of what is wrong. */
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
  /** `unopened`: the system refused something, which says nothing about the store. */
  | { readonly state: 'in-use' | 'newer' | 'unopened' | 'broken'; readonly reason: string };

/** More than so many findings of one store are counted, not shown. */
const SHOWN_MAX = 100;
/** Of damaged rows so many are named in one sentence. */
const NAMED_MAX = 5;

/** Reads a store that no mount has open. What cannot be opened is an answer, not a failure. */
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
    // What a damaged row said is not known: the checks would end at it.
    const damaged = [...store.damagedRows()].filter(({ table }) => table !== 'inline');
    const lost = damaged.filter(({ table }) => table !== 'blocks');
    if (lost.length > 0) return { state: 'broken', reason: damageOf(lost.map(({ row }) => row)) };
    // Nothing is fetched and nothing evicted: what these limits are does not matter.
    const options = { inlineMaxBytes: 16 * 1024, cacheBytes: Number.MAX_SAFE_INTEGER };
    const contents = new ContentStore({ store, directory, clock, log: silentLogger, options });
    // A block map heals by fetching its blocks again.
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

/** A file that is missing, or is another kind of file, is damage; whatever else the system refuses, it does not refuse to a later start. */
const DAMAGE_CODES: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ELOOP']);

/** No room, no descriptor, no permission: the same store opens when that is over. */
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
