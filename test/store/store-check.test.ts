import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  BLOCK_BYTES,
  type ContentId,
  type Inode,
  type IntentId,
  type ResourceUrl,
  type VersionUrl,
} from '../../src/base/vocabulary.ts';
import { checkBytes, checkStore } from '../../src/bytes/consistency-check.ts';
import type { Store } from '../../src/store/environment.ts';
import { newInode, removeNode, writeNode } from '../../src/store/node-table.ts';
import type { ContentRecord, IntentRecord, NodeRecord, Transaction } from '../../src/store/tables.ts';
import { openPlace, referredVersion } from './content-place.ts';
import { sampleContent, sampleLocal, sampleNode, sampleRemote } from './sample-records.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
const FILE = 2 as Inode;
const VERSION = 1 as ContentId;

/** A root with a clean file, a dirty one and a tombstone, their contents, one of them garbage. */
async function soundStore(directory?: string): Promise<Store> {
  const store = await stores.open(directory);
  store.transact((tx) => {
    writeNode(tx, undefined, sampleNode(1, { kind: 'folder', localOnly: true, local: sampleLocal(1, '') }), 0);
    const version = newContent(tx, {
      kind: 'version',
      sealed: true,
      sizeBytes: 12,
      where: 'inline',
      version: 'v1' as VersionUrl,
    });
    tx.put('version', 'v1' as VersionUrl, version);
    tx.put('inline', version, new Uint8Array(12));
    const remote = sampleRemote(1, 'clean', { content: version });
    const clean = { ...sampleNode(newInode(tx)), local: sampleLocal(1, 'clean', { content: version }), remote };
    writeNode(tx, undefined, clean, 0);
    const draft = newContent(tx, { sizeBytes: 20, where: 'none', base: version, baseBytes: 12 });
    const base = tx.get('content', version) as ContentRecord;
    tx.put('content', version, { ...base, refs: base.refs + 1 });
    writeNode(tx, undefined, { ...sampleNode(newInode(tx)), local: sampleLocal(1, 'dirty', { content: draft }) }, 0);
    const gone = { ...sampleNode(newInode(tx)), local: null, remote: sampleRemote(1, 'gone') };
    writeNode(tx, undefined, gone, 0);
    const dropped = newContent(tx, { sizeBytes: 0, where: 'none' });
    const brief = { ...sampleNode(newInode(tx)), local: sampleLocal(1, 'brief', { content: dropped }) };
    writeNode(tx, undefined, brief, 0);
    removeNode(tx, brief, 0);
  });
  return store;
}

function newContent(tx: Transaction, changes: Partial<ContentRecord>): ContentId {
  const id = tx.nextId('content') as ContentId;
  tx.put('content', id, sampleContent({ version: null, base: null, baseBytes: 0, extents: [], refs: 0, ...changes }));
  return id;
}

test('a store that was only changed through its tables has nothing to complain about', async () => {
  const store = await soundStore();
  expect([...checkStore(store)]).toEqual([]);
});

/** Of a version with a file of two blocks: a row of its block map that names so many blocks. */
function putBlocks(tx: Transaction, row: number, count: number): void {
  tx.put('content', VERSION, { ...record(tx, VERSION), where: 'file', sizeBytes: 2 * BLOCK_BYTES });
  tx.put('blocks', [VERSION, row], Buffer.from('0200000000'.repeat(count), 'hex'));
}

const CREATION = {
  owner: 77 as Inode,
  action: 'create-file',
  phase: 'sent',
  startedMs: 0,
  parentResource: 'p' as ResourceUrl,
  name: 'n',
  resource: null,
  content: null,
  version: null,
  sizeBytes: null,
} as const;

const CHANGES = ['fill', 'new-version', 'relocate', 'trash'] as const;
const TAKEOVERS = ['copy-file', 'restore'] as const;
const OTHER = 'https://service/file/other' as ResourceUrl;

const record = (tx: Transaction, id: ContentId): ContentRecord => tx.get('content', id) as ContentRecord;
const node = (tx: Transaction): NodeRecord => tx.get('node', FILE) as NodeRecord;
const resourceOf = (tx: Transaction): ResourceUrl => node(tx).remote?.resource as ResourceUrl;

test.each<[sentence: RegExp, damage: (tx: Transaction) => void]>([
  [/node 2 is missing from table name/, (tx) => tx.remove('name', [1 as Inode, 'clean'])],
  [/the name "x" in 1 leads to 2/, (tx) => tx.put('name', [1 as Inode, 'x'], FILE)],
  [/a resource leads to node 2/, (tx) => tx.put('resource', 'other' as ResourceUrl, FILE)],
  [/node 2 is missing from table resource/, (tx) => tx.remove('resource', node(tx).remote?.resource as ResourceUrl)],
  [/node 2 is clean and in the index/, (tx) => tx.put('dirty', FILE, { sinceMs: 0, parked: null })],
  [/node 3 is dirty and not in the index/, (tx) => tx.remove('dirty', 3 as Inode)],
  [
    /node 77 is in the index of dirty nodes, but does not exist/,
    (tx) => tx.put('dirty', 77 as Inode, { sinceMs: 0, parked: null }),
  ],
  [/node 2 is in the index of local-only nodes/, (tx) => tx.put('local', FILE, true)],
  [/node 2 is local-only and not in the index/, (tx) => tx.put('node', FILE, { ...node(tx), localOnly: true })],
  [/node 77 is in the index of local-only nodes, but does not exist/, (tx) => tx.put('local', 77 as Inode, true)],
  [
    /node 2 is in folder 9, which does not exist/,
    (tx) => tx.put('node', FILE, { ...node(tx), local: sampleLocal(9, 'clean') }),
  ],
  [
    /node 2 is in node 3, which is no folder/,
    (tx) => tx.put('node', FILE, { ...node(tx), local: sampleLocal(3, 'clean') }),
  ],
  [/node 9999 exceeds the counter/, (tx) => tx.put('node', 9999 as Inode, sampleNode(9999))],
  [/exists neither here nor/, (tx) => tx.put('node', FILE, { ...node(tx), local: null, remote: null })],
  [
    /names content 55, which does not exist/,
    (tx) => tx.put('node', FILE, { ...node(tx), local: sampleLocal(1, 'clean', { content: 55 as ContentId }) }),
  ],
  [
    /intent 5 of node 77 names content 55, which does not exist/,
    (tx) => tx.put('intent', 5 as IntentId, { ...CREATION, content: 55 as ContentId }),
  ],
  [
    /intent 6 is the second open intent of node 77/,
    (tx) => {
      for (const id of [5, 6]) tx.put('intent', id as IntentId, CREATION);
    },
  ],
  [
    /intent 5 of node 77 \(create-file\) changes a resource, but creates one/,
    (tx) => tx.put('intent', 5 as IntentId, { ...CREATION, resource: OTHER }),
  ],
  ...CHANGES.map((action): [RegExp, (tx: Transaction) => void] => [
    new RegExp(`intent 5 of node 77 \\(${action}\\) changes a resource that belongs to node 2`),
    (tx) => tx.put('intent', 5 as IntentId, { ...CREATION, action, resource: resourceOf(tx) }),
  ]),
  ...TAKEOVERS.map((action): [RegExp, (tx: Transaction) => void] => [
    new RegExp(`intent 5 of node 2 \\(${action}\\) takes over a resource that belongs to this node`),
    (tx) => tx.put('intent', 5 as IntentId, { ...CREATION, owner: FILE, action, resource: resourceOf(tx) }),
  ]),
  [/content 9999 exceeds the counter/, (tx) => tx.put('content', 9999 as ContentId, record(tx, VERSION))],
  [/content 1 counts 9 references and has 3/, (tx) => tx.put('content', VERSION, { ...record(tx, VERSION), refs: 9 })],
  [/content 1 is garbage, but has references/, (tx) => tx.put('garbage', VERSION, true)],
  [/content 3 has no references/, (tx) => tx.remove('garbage', 3 as ContentId)],
  [/garbage 44 does not exist/, (tx) => tx.put('garbage', 44 as ContentId, true)],
  [/small bytes of content 1 are missing/, (tx) => tx.remove('inline', VERSION)],
  [/content 1 has 5 of 12 small bytes/, (tx) => tx.put('inline', VERSION, new Uint8Array(5))],
  [
    /content 2 has small bytes, but no record that names them/,
    (tx) => tx.put('inline', 2 as ContentId, new Uint8Array(5)),
  ],
  [
    /has base 66, which does not exist/,
    (tx) => tx.put('content', 2 as ContentId, { ...record(tx, 2 as ContentId), base: 66 as ContentId }),
  ],
  [
    /own ranges of content 2 are not in order/,
    (tx) => tx.put('content', 2 as ContentId, { ...record(tx, 2 as ContentId), extents: [5, 3] }),
  ],
  [
    /shows 99 bytes of a base/,
    (tx) => tx.put('content', 2 as ContentId, { ...record(tx, 2 as ContentId), baseBytes: 99 }),
  ],
  [
    /block map of 1 belongs to no sealed content with a file/,
    (tx) => tx.put('blocks', [VERSION, 0], new Uint8Array(5)),
  ],
  [/row 1 of the block map of 1 exceeds its size/, (tx) => putBlocks(tx, 1, 1)],
  [/block 2 of content 1 exceeds its size/, (tx) => putBlocks(tx, 0, 3)],
  [/content 1 is missing from table version/, (tx) => tx.remove('version', 'v1' as VersionUrl)],
  [
    /a version leads to content 2, which belongs to another version/,
    (tx) => tx.put('version', 'v2' as VersionUrl, 2 as ContentId),
  ],
  [/node 2 has a listing, but is no folder/, (tx) => tx.put('folder', FILE, { listedMs: 1 })],
])('the check says: %s', async (sentence, damage) => {
  const store = await soundStore();
  store.transact(damage);
  expect([...checkStore(store)].join('\n')).toMatch(sentence);
});

test('a creation of unknown outcome whose file was deleted here meanwhile is nothing broken', async () => {
  const store = await soundStore();
  store.transact((tx) => tx.put('intent', 5 as IntentId, CREATION));

  expect([...checkStore(store)]).toEqual([]);
});

test.each<[what: string, intent: (tx: Transaction) => Partial<IntentRecord>]>([
  ['a copy of the file that the owner replaces', (tx) => ({ action: 'copy-file', resource: resourceOf(tx) })],
  ['a copy of a file that was deleted meanwhile', () => ({ action: 'copy-file', resource: OTHER })],
  ['a copy that no save waits for', () => ({ action: 'copy-file', resource: null })],
  ['a file that comes back from the trash', () => ({ action: 'restore', resource: OTHER })],
  [
    'a file that comes back from the trash, and whose address another node got',
    (tx) => ({ action: 'restore', resource: resourceOf(tx) }),
  ],
  ...CHANGES.flatMap((action): [string, (tx: Transaction) => Partial<IntentRecord>][] => [
    [
      `an operation (${action}) of the node that has the resource`,
      (tx) => ({ owner: FILE, action, resource: resourceOf(tx) }),
    ],
    [`an operation (${action}) on a resource of no node`, () => ({ owner: FILE, action, resource: OTHER })],
  ]),
  [
    'an abandoned upload to a file that another node has',
    (tx) => ({ action: 'new-version', phase: 'abandoned', resource: resourceOf(tx) }),
  ],
])('the check is silent about %s', async (_what, intent) => {
  const store = await soundStore();
  store.transact((tx) => tx.put('intent', 5 as IntentId, { ...CREATION, ...intent(tx) }));

  expect([...checkStore(store)]).toEqual([]);
});

test('every block of a version is compared, also that which nobody has read since the start', async () => {
  const first = await openPlace(stores);
  const id = referredVersion(first, 'f' as ResourceUrl, 3 * BLOCK_BYTES, '1');
  const path = first.contents.fetchPath(id) as string;
  writeFileSync(path, Buffer.alloc(3 * BLOCK_BYTES, 'abc'));
  first.contents.landed(id, { start: 0, end: 3 * BLOCK_BYTES }, null);
  first.contents.close();
  await first.store.close();
  const file = Buffer.from(readFileSync(path));
  file.writeUInt8(file.readUInt8(BLOCK_BYTES + 9) ^ 4, BLOCK_BYTES + 9);
  writeFileSync(path, file);

  const { store, contents } = await openPlace(stores, {}, first.directory);
  expect([...checkBytes(store, contents)]).toEqual([`block 1 of content ${id} is damaged`]);
  contents.close();
});

test('small bytes that are not what was written are named', async () => {
  const directory = stores.directory();
  const before = await soundStore(directory);
  before.transact((tx) => tx.put('inline', VERSION, Buffer.from('recognizable')));
  await before.close();
  const index = join(directory, 'index', 'data.mdb');
  const bytes = readFileSync(index);
  for (let at = bytes.indexOf('recogn'); at >= 0; at = bytes.indexOf('recogn', at + 1)) bytes.write('forgot', at);
  writeFileSync(index, bytes);

  expect([...checkStore(await stores.open(directory))]).toEqual(['the small bytes of content 1 are damaged']);
});
