import { expect, test } from 'vitest';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { NodeView } from '../../src/fs/node-view.ts';
import type { OpenFiles } from '../../src/fs/open-files.ts';
import { makeTree, merge } from '../tree/tree-fixture.ts';

test('the kernel caches the absence of a name only in a folder that was listed', () => {
  const fixture = makeTree();
  merge(fixture, ROOT_INODE, []);
  const trash = fixture.tree.createTrashRoot({ name: 'trash', mode: 0o700, uid: 1000, gid: 1000 });
  const view = new NodeView({
    ...{ tree: fixture.tree, clock: fixture.clock, files: {} as OpenFiles, onAttributesSent: () => {} },
    entryTimeoutMs: 60_000,
    attributeTimeoutMs: 60_000,
  });

  expect(view.lookup(ROOT_INODE, 'x')).toEqual({ attributes: null, entryTimeoutMs: 60_000 });
  expect(fixture.tree.isComplete(trash.ino)).toBe(true);
  expect(view.lookup(trash.ino, 'x')).toEqual({ attributes: null, entryTimeoutMs: 0 });
});
