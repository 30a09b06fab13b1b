import type { ResourceUrl } from '../base/vocabulary.ts';
import { pinnedNodes } from './pinned-nodes.ts';
import { DamagedRow } from './record-codec.ts';
import type { DepartedRecord, NodeRecord, StoreReader, StoreWriter, Transaction } from './tables.ts';

/**
 * Attributes of nodes that were removed because the service deleted them. They are kept by address, in case a later listing has the
 * address again. INVARIANT: an address with a row belongs to no node (`writeNode` removes the row). `meta` counts the weight of all rows.
 */

export const DEPARTED_KEPT_MS = 30 * 24 * 3_600_000;
/** Limit of the weight of all rows: beyond it the oldest are removed. */
export const DEPARTED_WEIGHT_MAX = 10_000;
/** A row weighs 1, and 1 more for each full length of user attributes. */
const WEIGHT_BYTES = 4096;
/** Weight that a trim removes below the limit: a trim reads the whole table, so it should be rare. */
const TRIMMED_WEIGHT = DEPARTED_WEIGHT_MAX / 10;
/** In table `meta`: the weight of all rows. */
const KEY = 'departed-weight';

/** Keeps the attributes of `nodes`, which were just removed. `isPlain`: whether a node has no attributes of its own. */
export function keepDeparted(
  tx: Transaction,
  nodes: Iterable<NodeRecord>,
  nowMs: number,
  isPlain: (node: NodeRecord) => boolean = () => false,
): void {
  const pinned = new Set(pinnedNodes(tx));
  let weight = departedWeight(tx);
  const before = weight;
  for (const node of nodes) {
    const { ino, local, remote } = node;
    const isPinned = pinned.has(ino);
    if (local === null || remote === null || (!isPinned && isPlain(node))) continue;
    // Another node has the address by now.
    if (tx.get('resource', remote.resource) !== undefined) continue;
    const { mode, uid, gid, atime, mtime, xattrs } = local;
    const { sizeBytes, modified } = remote;
    const known = tx.get('departed', remote.resource);
    const row = { departedMs: nowMs, mode, uid, gid, atime, mtime, xattrs, sizeBytes, modified, isPinned };
    tx.put('departed', remote.resource, row);
    weight += weightOf(row) - (known === undefined ? 0 : weightOf(known));
  }
  if (weight === before) return;
  tx.put('meta', KEY, weight);
  if (weight > DEPARTED_WEIGHT_MAX) trim(tx, nowMs, DEPARTED_WEIGHT_MAX - TRIMMED_WEIGHT);
}

/** The attributes that are kept for an address; undefined after 30 days. */
export function departedAttributes(
  store: Pick<StoreReader, 'get'>,
  resource: ResourceUrl,
  nowMs: number,
): DepartedRecord | undefined {
  const row = store.get('departed', resource);
  return row === undefined || isOver(row, nowMs) ? undefined : row;
}

export function forgetDeparted(tx: Transaction, resource: ResourceUrl): void {
  if (departedWeight(tx) === 0) return;
  const row = tx.get('departed', resource);
  if (row === undefined) return;
  tx.remove('departed', resource);
  tx.put('meta', KEY, Math.max(0, departedWeight(tx) - weightOf(row)));
}

/** Removes rows older than 30 days. Reads the whole table: for the start of a mount. */
export function forgetOldDeparted(store: StoreWriter, nowMs: number): void {
  let weight = 0;
  let isAnyOver = false;
  for (const [, row] of store.all('departed')) {
    weight += weightOf(row);
    if (isOver(row, nowMs)) isAnyOver = true;
  }
  if (isAnyOver || weight !== departedWeight(store))
    store.transact((tx) => trim(tx, nowMs, DEPARTED_WEIGHT_MAX), 'learnt');
}

/** The inconsistencies of the table, as sentences. */
export function* checkDeparted(store: StoreReader): Generator<string> {
  let weight = 0;
  for (const [resource, row] of store.all('departed')) {
    weight += weightOf(row);
    const ino = store.get('resource', resource);
    if (ino !== undefined)
      yield `attributes of a removed node are stored for an address that node ${ino} has: that node is not removed`;
  }
  const counted = departedWeight(store);
  if (weight !== counted) yield `the attributes of removed nodes weigh ${weight} and are counted as ${counted}`;
}

function trim(tx: Transaction, nowMs: number, weightMax: number): void {
  let weight = 0;
  const rows: [ResourceUrl, DepartedRecord][] = [];
  for (const [resource, row] of tx.all('departed')) rows.push([resource, row]);
  rows.sort(([, one], [, other]) => other.departedMs - one.departedMs);
  for (const [resource, row] of rows) {
    if (isOver(row, nowMs) || weight + weightOf(row) > weightMax) tx.remove('departed', resource);
    else weight += weightOf(row);
  }
  tx.put('meta', KEY, weight);
}

export function departedWeight(store: Pick<StoreReader, 'get'>): number {
  try {
    return Number(store.get('meta', KEY) ?? 0);
  } catch (error) {
    // The next start counts again.
    if (error instanceof DamagedRow) return 0;
    throw error;
  }
}

function weightOf({ xattrs }: DepartedRecord): number {
  let bytes = 0;
  for (const [name, value] of Object.entries(xattrs ?? {})) bytes += Buffer.byteLength(name) + value.byteLength;
  return 1 + Math.floor(bytes / WEIGHT_BYTES);
}

function isOver({ departedMs }: DepartedRecord, nowMs: number): boolean {
  return nowMs - departedMs >= DEPARTED_KEPT_MS;
}
