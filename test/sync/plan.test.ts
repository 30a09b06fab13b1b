import { describe, expect, test } from 'vitest';
import type { ContentId, Inode, ResourceUrl } from '../../src/base/vocabulary.ts';
import { Intents } from '../../src/store/intents.ts';
import { writeNode } from '../../src/store/node-table.ts';
import type { NodeRecord } from '../../src/store/tables.ts';
import { DirtyIndex } from '../../src/sync/dirty-index.ts';
import { type Decision, decide, type PlanView, wayOut } from '../../src/sync/plan.ts';
import { MemoryStore } from '../tree/memory-store.ts';

/** `here` and `there`: `folder inode/name`; null for not there. */
interface Sketch {
  readonly ino: number;
  readonly kind?: 'file' | 'folder';
  readonly here: string | null;
  readonly there: string | null;
  readonly contentHere?: number;
  readonly contentThere?: number;
  readonly createdHereMs?: number;
}

const time = { sec: 0, nsec: 0 };

function recordOf({ ino, kind = 'folder', here, there, contentHere, contentThere, createdHereMs }: Sketch): NodeRecord {
  const place = (at: string): { parent: Inode; name: string } => {
    const [parent = '', name = ''] = at.split('/');
    return { parent: Number(parent) as Inode, name };
  };
  const owner = { mode: 0o755, uid: 1, gid: 1, atime: time, mtime: time, ctime: time, xattrs: null };
  const contentOf = (id: number | undefined): ContentId | null => (id ?? null) as ContentId | null;
  return {
    ino: ino as Inode,
    kind,
    localOnly: false,
    local: here === null ? null : { ...place(here), ...owner, content: contentOf(contentHere), sizeBytes: 0 },
    remote:
      there === null
        ? null
        : {
            ...place(there),
            resource: `r${ino}` as ResourceUrl,
            shownAs: place(there).name,
            sizeBytes: null,
            modified: null,
            mediaType: null,
            content: contentOf(contentThere),
            createdHereMs: createdHereMs ?? null,
          },
  };
}

/** What the plan decides about each dirty node of a tree drawn so. The root is inode 1. */
function decisions(sketches: readonly Sketch[], special: Partial<PlanView> = {}): (ino: number) => Decision {
  const view = viewOf(sketches, special);
  return (ino) => decide(ino as Inode, view);
}

function viewOf(sketches: readonly Sketch[], special: Partial<PlanView> = {}): PlanView {
  const store = new MemoryStore();
  store.transact((tx) => {
    for (const id of [100, 101, 102]) {
      const empty = {
        version: null,
        resource: null,
        where: 'none',
        base: null,
        baseBytes: 0,
        extents: [],
        refs: 0,
      } as const;
      tx.put('content', id as ContentId, { kind: 'draft', sealed: true, sizeBytes: 1, ...empty });
    }
    for (const sketch of [{ ino: 1, here: '1/', there: '1/' }, ...sketches]) {
      writeNode(tx, undefined, recordOf(sketch), 0);
    }
  });
  const index = new DirtyIndex(store, new Intents(store));
  for (const [ino] of store.all('dirty')) index.refresh(ino);
  return {
    nowMs: 0,
    elapsedMs: 0,
    saveWindowMs: 60_000,
    deletion: 'trash',
    node: (ino) => store.get('node', ino),
    child: (parent, name) => store.get('node', store.get('name', [parent, name]) ?? (0 as Inode)),
    dirty: (ino) => store.get('dirty', ino),
    settledMs: () => 0,
    triedMs: () => 0,
    pusherOf: () => null,
    sendsVersion: () => false,
    isUnsure: () => false,
    claimant: () => null,
    occupants: (parent, name) => index.occupants(parent, name),
    remoteChildren: (folder) => index.remoteChildren(folder),
    whoNeeds: ({ content }) => (content === null ? null : index.whoNeeds(content)),
    isOpen: () => false,
    isBeingWritten: () => false,
    isSplit: () => false,
    isTrash: () => false,
    refusedBy: () => null,
    remoteName: (name) => name,
    ...special,
  };
}

const wait = (ino: number, because: string): object => ({ type: 'wait', for: ino, because });

describe('the order that the service accepts', () => {
  test('a parent is created before its entries', () => {
    const about = decisions([
      { ino: 2, here: '1/a', there: null },
      { ino: 3, here: '2/b', there: null },
    ]);
    expect(about(2)).toMatchObject({ action: { type: 'create-folder' } });
    expect(about(3)).toEqual(wait(2, 'parent'));
  });

  test('an entry that leaves a folder is moved before the folder is deleted', () => {
    const about = decisions([
      { ino: 2, here: null, there: '1/a' },
      { ino: 3, here: '1/b', there: '2/b' },
      { ino: 4, here: null, there: '2/c' },
    ]);
    expect(about(2)).toEqual(wait(3, 'below'));
    expect(about(3)).toMatchObject({ action: { type: 'relocate', parent: 1, name: 'b' } });
    expect(about(4)).toEqual(wait(2, 'below'));
  });

  test('a folder is deleted together with everything that was deleted in it', () => {
    const about = decisions([
      { ino: 2, here: null, there: '1/a' },
      { ino: 3, here: null, there: '2/b' },
      { ino: 4, here: null, there: '3/c', kind: 'file' },
    ]);
    expect(about(2)).toEqual({ type: 'push', action: { type: 'delete', ino: 2, below: [3, 4] } });
    expect([about(3), about(4)]).toEqual([wait(2, 'below'), wait(3, 'below')]);
  });

  test('permanent deletions are made one by one, from below', () => {
    const about = decisions(
      [
        { ino: 2, here: null, there: '1/a' },
        { ino: 3, here: null, there: '2/b', kind: 'file' },
      ],
      { deletion: 'forever' },
    );
    expect(about(2)).toEqual(wait(3, 'below'));
    expect(about(3)).toMatchObject({ action: { type: 'delete', below: [] } });
  });

  test('a folder is never moved into itself: folders in between move out first', () => {
    const about = decisions([
      { ino: 2, here: '3/a', there: '1/a' },
      { ino: 3, here: '1/b', there: '2/b' },
    ]);
    expect(about(2)).toEqual(wait(3, 'above'));
    expect(about(3)).toMatchObject({ action: { type: 'relocate', parent: 1, name: 'b' } });
  });

  test('a chain of names is resolved from its free end', () => {
    const about = decisions([
      { ino: 2, here: '1/b', there: '1/a' },
      { ino: 3, here: '1/c', there: '1/b' },
    ]);
    expect(about(2)).toEqual(wait(3, 'name'));
    expect(about(3)).toMatchObject({ action: { type: 'relocate', name: 'c' } });
  });

  test('a cycle of names is broken by a temporary name, unless one node does not wait any more', () => {
    const circle = [
      { ino: 2, here: '1/b', there: '1/a' },
      { ino: 3, here: '1/c', there: '1/b' },
      { ino: 4, here: '1/a', there: '1/c' },
    ];
    const ring = [2, 3, 4] as Inode[];
    expect([2, 3, 4].map(decisions(circle))).toEqual([wait(3, 'name'), wait(4, 'name'), wait(2, 'name')]);
    expect(wayOut(ring, viewOf(circle))).toMatchObject({ action: { type: 'relocate', ino: 3, name: null } });
    expect(wayOut(ring, viewOf(circle, { pusherOf: (ino) => (ino === 4 ? ino : null) }))).toBeNull();
    expect(wayOut([2, 3] as Inode[], viewOf(circle))).toBeNull();
  });

  test('a file that becomes the folder that contains it gets a temporary name', () => {
    const sketches = [
      { ino: 2, here: '3/a', there: '1/a', kind: 'file' },
      { ino: 3, here: '1/a', there: null },
    ] as const;
    expect([2, 3].map(decisions(sketches))).toEqual([wait(3, 'parent'), wait(2, 'name')]);
    const way = { action: { type: 'relocate', ino: 2, parent: 1, name: null } };
    expect(wayOut([2, 3] as Inode[], viewOf(sketches))).toMatchObject(way);
  });

  test('a deleted file that is still open leaves its name', () => {
    const sketches = [
      { ino: 2, here: null, there: '1/a', kind: 'file' },
      { ino: 3, here: '1/a', there: null },
    ] as const;
    expect(decisions(sketches)(3)).toEqual(wait(2, 'name'));
    expect(decisions(sketches, { isOpen: (ino) => ino === 2 })(3)).toMatchObject({
      action: { type: 'relocate', ino: 2, parent: 1, name: null },
    });
  });
});

describe('saves', () => {
  test('a file that is deleted and created again becomes the next version of the old file', () => {
    const about = decisions([
      { ino: 2, here: null, there: '1/f', kind: 'file', contentThere: 100 },
      { ino: 3, here: '1/f', there: null, kind: 'file', contentHere: 101 },
    ]);
    const transfer = { type: 'transfer', ino: 3, from: 2 };
    expect([about(2), about(3)]).toEqual([transfer, transfer]);
  });

  test('a large old file renamed over another one is no save: it takes two requests and keeps both histories', () => {
    const about = decisions([
      { ino: 2, here: null, there: '1/f', kind: 'file', contentThere: 100 },
      { ino: 3, here: '1/f', there: '1/g', kind: 'file', contentHere: 101, contentThere: 101 },
    ]);
    expect(about(2)).toMatchObject({ action: { type: 'delete' } });
    expect(about(3)).toEqual(wait(2, 'name'));
  });

  test('a resource that was given up in a save is trashed after its bytes are pushed elsewhere', () => {
    const about = decisions([
      { ino: 2, here: null, there: '1/tmp', kind: 'file', contentThere: 101 },
      { ino: 3, here: '1/f', there: '1/f', kind: 'file', contentHere: 101, contentThere: 100 },
    ]);
    expect(about(2)).toEqual(wait(3, 'bytes'));
    expect(about(3)).toMatchObject({ action: { type: 'upload' } });
  });
});

describe('what waits', () => {
  const isIt = (ino: number) => (other: Inode) => other === ino;
  const file = { ino: 2, here: '1/f', there: null, kind: 'file', contentHere: 100 } as const;

  test('a change waits for the end of its settle delay', () => {
    expect(decisions([file], { settledMs: () => 5 })(2)).toEqual({ type: 'settle', untilMs: 5 });
  });

  test('until it is closed', () => {
    expect(decisions([file], { isBeingWritten: isIt(2) })(2)).toEqual({ type: 'open' });
    expect(decisions([{ ...file, here: null, there: '1/f' }], { isOpen: isIt(2) })(2)).toEqual({ type: 'open' });
  });

  test('a node with an unknown outcome waits for its recovery, and nothing comes before that', () => {
    expect(decisions([file], { isUnsure: isIt(2) })(2)).toEqual({ type: 'push', action: { type: 'recover', ino: 2 } });
  });

  test('a node waits for a push that another node began and that works for it now', () => {
    expect(decisions([file], { pusherOf: () => 9 as Inode })(2)).toEqual(wait(9, 'push'));
  });

  test('a folder that contains an open file is not deleted whole', () => {
    const about = decisions(
      [
        { ino: 2, here: null, there: '1/a' },
        { ino: 3, here: null, there: '2/f', kind: 'file' },
      ],
      { isOpen: isIt(3) },
    );
    expect(about(2)).toEqual({ type: 'split', ino: 2 });
  });
});
