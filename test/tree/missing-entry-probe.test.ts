import { expect, test } from 'vitest';
import { ApiError } from '../../src/base/errors.ts';
import { type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { MissingEntryProbe } from '../../src/tree/missing-entry-probe.ts';
import {
  acknowledge,
  checkStore,
  type Fixture,
  file,
  folder,
  LookedAtService,
  localFile,
  makeTree,
  merge,
  namesIn,
  ROOT_URL,
} from './tree-fixture.ts';

const never = new AbortController().signal;

/** A listing of the root lacks something; the service is asked for it. */
async function ask(fixture: Fixture, entries: Parameters<typeof merge>[2], service: LookedAtService): Promise<void> {
  const { tree, fence, clock } = fixture;
  const { questions } = merge(fixture, ROOT_INODE, entries);
  const asking = new MissingEntryProbe({ tree, listing: service, fence, clock });
  for (const question of questions) await asking.resolve(question, never);
}

test('an answer about a resource says nothing of the one that the file took over meanwhile', async () => {
  const fixture = makeTree();
  const { tree } = fixture;
  const doc = file('doc', 'doc');
  merge(fixture, ROOT_INODE, [doc]);
  const saved = localFile(tree, ROOT_INODE, 'doc.tmp').ino;
  acknowledge(fixture, saved, file('tmp', 'doc.tmp').url);
  // Somebody else cleans up *.tmp. The save goes on while that is asked for.
  const service = new LookedAtService();
  service.before = () => {
    tree.rename(ROOT_INODE, 'doc.tmp', ROOT_INODE, 'doc', 'replace');
    expect(tree.node(saved)?.remote?.resource).toBe(doc.url);
  };
  await ask(fixture, [doc], service);

  expect(service.requests).toHaveLength(1);
  expect(tree.node(saved)?.remote?.resource).toBe(doc.url);
});

/** A file was moved to a folder outside, of which the service tells no more than that status. */
function movedOutOfSight(status: number) {
  const fixture = makeTree();
  merge(fixture, ROOT_INODE, [file('1', 'theirs')]);
  const above = 'https://service/folder/of-its-owner' as ResourceUrl;
  const service = new LookedAtService();
  service.folders.set(above, [file('1', 'theirs')]);
  service.before = (request) => {
    if (request === `resource ${above}`) throw new ApiError(status, 'GET', 'not told');
  };
  return { fixture, service };
}

test.each([400, 403])('what was moved to where nobody else may look (%i) is gone here', async (status) => {
  const { fixture, service } = movedOutOfSight(status);
  await ask(fixture, [], service);

  expect(namesIn(fixture.tree, ROOT_INODE)).toEqual([]);
});

test('a folder above that cannot be asked for at the moment says nothing', async () => {
  const { fixture, service } = movedOutOfSight(503);
  await expect(ask(fixture, [], service)).rejects.toThrow('not told');

  expect(namesIn(fixture.tree, ROOT_INODE)).toEqual(['theirs']);
});

test.each([
  ['is not known yet', false],
  ['is known as another node', true],
])('a file that is told under a new address, which %s, is one file', async (_, isKnown) => {
  const fixture = makeTree();
  const { tree, store } = fixture;
  merge(fixture, ROOT_INODE, [folder('d', 'd'), file('old', 'f')]);
  const d = tree.child(ROOT_INODE, 'd')?.ino ?? ROOT_INODE;
  const before = tree.child(ROOT_INODE, 'f')?.ino;
  const now = file('new', 'f');
  merge(fixture, d, isKnown ? [now] : []);
  const service = new LookedAtService();
  service.put(ROOT_URL, folder('d', 'd'));
  service.put(folder('d', 'd').url, now);
  const ofNew = service.resource.bind(service);
  service.resource = (url, kind, signal) => ofNew(url === file('old', 'f').url ? now.url : url, kind, signal);
  await ask(fixture, [folder('d', 'd')], service);
  merge(fixture, d, [now]);

  expect(namesIn(tree, ROOT_INODE)).toEqual(['d/']);
  expect(namesIn(tree, d)).toEqual(['f']);
  expect(tree.child(d, 'f')?.remote?.resource).toBe(now.url);
  if (!isKnown) expect(tree.child(d, 'f')?.ino).toBe(before);
  checkStore(store);
});
