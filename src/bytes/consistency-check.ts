import { FsError } from '../base/errors.ts';
import { BLOCK_BYTES, type ContentId, type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import { checkDeparted } from '../store/departed-attributes.ts';
import { isDirty, staysHere } from '../store/node-table.ts';
import type { ContentRecord, IntentRecord, NodeRecord, StoreReader } from '../store/tables.ts';
import { BLOCKS_PER_ROW, blocksOfRow } from './block-map.ts';
import { isLayered } from './content-layers.ts';
import type { Contents } from './contents.ts';

/**
 * Checks every invariant of the store; yields a sentence for each violation (`cfs doctor --store`, and tests after crashes). Reads
 * everything: not for a mount in use.
 */
export function* checkStore(store: StoreReader): Generator<string> {
  yield* checkNodes(store);
  yield* checkIndexes(store);
  yield* checkIntents(store);
  yield* checkContents(store);
  yield* checkDeparted(store);
}

/**
 * Compares every block that has a checksum with its checksum. A damaged block of a version is dropped and fetched again at the next read. One of a
 * frozen draft is in no version that this machine knows.
 */
export function* checkBytes(store: StoreReader, contents: Pick<Contents, 'pieces'>): Generator<string> {
  for (const [[id, row], bytes] of store.all('blocks')) {
    for (const { block } of blocksOfRow(row, bytes)) {
      const extent = { start: block * BLOCK_BYTES, end: (block + 1) * BLOCK_BYTES };
      const isVersion = store.get('content', id)?.kind === 'version';
      try {
        const pieces = contents.pieces(id, extent);
        if (isVersion && pieces.some((piece) => piece.kind === 'missing'))
          yield `block ${block} of content ${id} is damaged`;
      } catch (error) {
        if (!(error instanceof FsError)) throw error;
        yield `block ${block} of content ${id} is damaged, and in no version`;
      }
    }
  }
}

function* checkNodes(store: StoreReader): Generator<string> {
  const next = Number(store.get('meta', 'next-inode') ?? 2);
  for (const [ino, node] of store.all('node')) {
    const { local, remote } = node;
    const it = `node ${ino}`;
    if (ino >= next && ino !== ROOT_INODE) yield `${it} exceeds the counter (${next})`;
    if (local === null && remote === null) yield `${it} exists neither here nor on the service`;
    if (local !== null && local.parent !== ino) {
      if (store.get('name', [local.parent, local.name]) !== ino)
        yield `${it} is missing from table name, in folder ${local.parent}`;
      const parent = store.get('node', local.parent);
      if (parent?.local == null) yield `${it} is in folder ${local.parent}, which does not exist`;
      else if (parent.kind !== 'folder') yield `${it} is in node ${local.parent}, which is no folder`;
    }
    if (remote !== null && store.get('resource', remote.resource) !== ino) yield `${it} is missing from table resource`;
    if (isDirty(node) !== (store.get('dirty', ino) !== undefined)) {
      yield isDirty(node) ? `${it} is dirty and not in the index` : `${it} is clean and in the index of dirty ones`;
    }
    if (staysHere(node) !== (store.get('local', ino) !== undefined)) {
      yield staysHere(node) ? `${it} is local-only and not in the index` : `${it} is in the index of local-only nodes`;
    }
    for (const content of contentsOf(node)) {
      if (store.get('content', content) === undefined) yield `${it} names content ${content}, which does not exist`;
    }
  }
}

function* checkIndexes(store: StoreReader): Generator<string> {
  for (const [[parent, name], ino] of store.all('name')) {
    const local = store.get('node', ino)?.local;
    if (local?.parent !== parent || local.name !== name)
      yield `the name ${JSON.stringify(name)} in ${parent} leads to ${ino}, which has another one`;
  }
  for (const [resource, ino] of store.all('resource')) {
    if (store.get('node', ino)?.remote?.resource !== resource)
      yield `a resource leads to node ${ino}, which has another one`;
  }
  for (const [ino] of store.all('dirty')) {
    if (store.get('node', ino) === undefined) yield `node ${ino} is in the index of dirty nodes, but does not exist`;
  }
  for (const [ino] of store.all('local')) {
    if (store.get('node', ino) === undefined)
      yield `node ${ino} is in the index of local-only nodes, but does not exist`;
  }
  for (const [ino] of store.all('folder')) {
    if (store.get('node', ino)?.kind !== 'folder') yield `node ${ino} has a listing, but is no folder`;
  }
  for (const [url, id] of store.all('version')) {
    if (store.get('content', id)?.version !== url)
      yield `a version leads to content ${id}, which belongs to another version`;
  }
}

/** Checks the operations in flight: one for each node, and each on the resource that it may change. */
export function* checkIntents(store: StoreReader): Generator<string> {
  const owners = new Set<Inode>();
  for (const [id, intent] of store.all('intent')) {
    const { owner, phase, content } = intent;
    const it = `intent ${id} of node ${owner}`;
    if (content !== null && store.get('content', content) === undefined)
      yield `${it} names content ${content}, which does not exist`;
    if (phase === 'abandoned') continue;
    if (owners.has(owner)) yield `intent ${id} is the second open intent of node ${owner}`;
    owners.add(owner);
    yield* checkTarget(store, it, intent);
  }
}

/** The owner of a creation may be deleted: recovery then finds and deletes the resource that the operation may have created. */
function* checkTarget(store: StoreReader, it: string, intent: IntentRecord): Generator<string> {
  const { owner, action, resource } = intent;
  const holder = resource === null ? undefined : store.get('resource', resource);
  switch (action) {
    case 'create-folder':
    case 'create-file':
      if (resource !== null) yield `${it} (${action}) changes a resource, but creates one`;
      break;
    case 'fill':
    case 'new-version':
    case 'relocate':
    case 'trash':
      // A node that takes the resource over takes the operation over, too. Recovery ends the operation on a resource of no node.
      if (holder !== undefined && holder !== owner)
        yield `${it} (${action}) changes a resource that belongs to node ${holder}`;
      break;
    case 'copy-file':
    case 'restore':
      // The source of a copy is another node's: the file that the owner replaces. It may be deleted meanwhile, and no save waits for the copy
      // then. A file in the trash is no node's, unless the service gives its address to another node. Recovery then forgets the intent.
      if (holder === owner) yield `${it} (${action}) takes over a resource that belongs to this node`;
      break;
    default:
      action satisfies never;
  }
}

function* checkContents(store: StoreReader): Generator<string> {
  const references = countReferences(store);
  const next = Number(store.get('meta', 'next-content') ?? 1);
  for (const [id, record] of store.all('content')) {
    const it = `content ${id}`;
    const counted = references.get(id) ?? 0;
    if (id >= next) yield `${it} exceeds the counter (${next})`;
    if (record.refs !== counted) yield `${it} counts ${record.refs} references and has ${counted}`;
    const isGarbage = store.get('garbage', id) !== undefined;
    if (isGarbage && record.refs > 0) yield `${it} is garbage, but has references`;
    if (!isGarbage && record.refs === 0) yield `${it} has no references, but is not garbage`;
    if (record.base !== null && store.get('content', record.base) === undefined)
      yield `${it} has base ${record.base}, which does not exist`;
    if (record.kind === 'version' && record.version !== null && store.get('version', record.version) === undefined) {
      yield `${it} is missing from table version`;
    }
    yield* checkExtents(id, record);
    yield* checkInline(store, id, record);
  }
  for (const [id] of store.all('inline')) {
    if (store.get('content', id)?.where !== 'inline')
      yield `content ${id} has small bytes, but no record that names them`;
  }
  for (const [id] of store.all('garbage')) {
    if (store.get('content', id) === undefined) yield `garbage ${id} does not exist`;
  }
  for (const [[id, row], bytes] of store.all('blocks')) {
    const record = store.get('content', id);
    if (record === undefined || record.where !== 'file' || !record.sealed) {
      yield `row ${row} of the block map of ${id} belongs to no sealed content with a file`;
      continue;
    }
    if (row * BLOCKS_PER_ROW * BLOCK_BYTES >= record.sizeBytes)
      yield `row ${row} of the block map of ${id} exceeds its size`;
    for (const { block } of blocksOfRow(row, bytes)) {
      if (block * BLOCK_BYTES >= record.sizeBytes) yield `block ${block} of content ${id} exceeds its size`;
    }
  }
}

function* checkExtents(id: ContentId, record: ContentRecord): Generator<string> {
  const { extents, sizeBytes, baseBytes, base } = record;
  let last = -1;
  for (let at = 0; at < extents.length; at += 2) {
    const start = extents[at] as number;
    const end = extents[at + 1] ?? Number.NaN;
    if (!(start > last && end > start && end <= sizeBytes)) {
      yield `the own ranges of content ${id} are not in order within its ${sizeBytes} bytes`;
      return;
    }
    last = end;
  }
  if (baseBytes > sizeBytes || (base === null && baseBytes !== 0))
    yield `content ${id} shows ${baseBytes} bytes of a base, but has no base`;
}

function* checkInline(store: StoreReader, id: ContentId, record: ContentRecord): Generator<string> {
  if (record.where !== 'inline') return;
  const bytes = store.get('inline', id);
  const wanted = record.kind === 'version' && !isLayered(record) ? record.sizeBytes : (record.extents.at(-1) ?? 0);
  if (bytes === undefined) yield `the small bytes of content ${id} are missing`;
  else if (bytes === 'damaged') yield `the small bytes of content ${id} are damaged`;
  else if (bytes.byteLength < wanted) yield `content ${id} has ${bytes.byteLength} of ${wanted} small bytes`;
}

function countReferences(store: StoreReader): Map<ContentId, number> {
  const references = new Map<ContentId, number>();
  const count = (id: ContentId | null): void => {
    if (id !== null) references.set(id, (references.get(id) ?? 0) + 1);
  };
  for (const [, node] of store.all('node')) for (const id of contentsOf(node)) count(id);
  for (const [, record] of store.all('content')) count(record.base);
  for (const [, { content }] of store.all('intent')) count(content);
  return references;
}

/** The contents that a node refers to, once per reference. */
function contentsOf(node: NodeRecord): ContentId[] {
  return [node.local?.content ?? null, node.remote?.content ?? null].filter((id) => id !== null);
}
