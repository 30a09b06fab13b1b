import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FsError } from '../../src/base/errors.ts';
import type { RemoteEntry, RemoteResource } from '../../src/base/resources.ts';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { isContentDirty } from '../../src/store/node-table.ts';
import { acknowledge, checkStore, type Fixture, localFile, makeTree, ROOT_URL } from './tree-fixture.ts';

/**
 * A service that lies, or one that is asked while everything moves: folders that lie in themselves or in each other, one address
 * in two places, files that are folders the next time, names and moments beyond all bounds.
 */
const FOLDERS = [1, 2, 3, 4].map((n) => `https://service/folder/${n}` as ResourceUrl);
const URLS = [ROOT_URL, ...FOLDERS, ...[1, 2, 3].map((n) => `https://service/file/${n}` as ResourceUrl)];
const NAMES = ['a', 'A', 'b', 'é', 'e\u0301', '', '.', '..', '/', 'a/b', '\0', 'x'.repeat(300), '\ud800', '／'];

const entryOf: fc.Arbitrary<RemoteEntry> = fc
  .record({
    url: fc.constantFrom(...URLS),
    name: fc.constantFrom(...NAMES),
    isOther: fc.boolean(),
    sizeBytes: fc.constantFrom(null, 0, 3, Number.MAX_SAFE_INTEGER),
    lastModifiedMs: fc.constantFrom(null, 0, -62_135_596_800_000, 253_402_300_799_999, 1),
    mediaType: fc.constantFrom(null, 'text/plain', 'inode/symlink'),
  })
  .map(({ url, name, isOther, sizeBytes, lastModifiedMs, mediaType }): RemoteEntry => {
    // One of two entries in eight is of another kind than it was.
    const isFolder = url.includes('/folder/') !== (isOther && name.length % 4 === 3);
    return isFolder
      ? { kind: 'folder', url, name }
      : { kind: 'file', url, name, sizeBytes, lastModifiedMs, mediaType, presentOnServer: sizeBytes !== null };
  });

type Step =
  | {
      readonly do: 'list';
      readonly folder: number;
      readonly entries: readonly RemoteEntry[];
      readonly answers: readonly number[];
    }
  | {
      readonly do: 'make' | 'remove' | 'rename' | 'push';
      readonly at: number;
      readonly to: number;
      readonly name: string;
    };

const stepOf: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('list' as const),
      folder: fc.nat(),
      entries: fc.array(entryOf, { maxLength: 6 }),
      answers: fc.array(fc.nat(), { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('make' as const, 'remove' as const, 'rename' as const, 'push' as const),
      at: fc.nat(),
      to: fc.nat(),
      name: fc.constantFrom('a', 'b', 'c'),
    }),
  },
);

function foldersOf({ store }: Fixture): Inode[] {
  return [...store.all('node')]
    .filter(([, { kind, remote }]) => kind === 'folder' && remote !== null)
    .map(([ino]) => ino);
}

/** Lists, and answers what the listing asks. */
function list(
  fixture: Fixture,
  folder: Inode,
  entries: readonly RemoteEntry[],
  answer: (url: ResourceUrl) => RemoteResource | null,
) {
  const { tree, fence, clock } = fixture;
  const sequence = fence.nextSequence();
  const { questions, postponed } = tree.merge(folder, entries, sequence, clock.nowMs(), clock.nowMs());
  for (const { ino, resource } of questions) tree.resolveAbsence(ino, answer(resource), sequence, true);
  tree.mergePart(folder, postponed, sequence, clock.nowMs(), clock.nowMs());
  fence.finish(sequence);
}

function act(fixture: Fixture, step: Step): void {
  const { tree, store } = fixture;
  if (step.do === 'list') {
    const folders = foldersOf(fixture);
    const parentOf = (n: number): ResourceUrl => URLS[n % 5] as ResourceUrl;
    list(fixture, folders[step.folder % folders.length] as Inode, step.entries, (url) => {
      const n = step.answers[url.length % step.answers.length] as number;
      const kind = url.includes('/folder/') ? 'folder' : 'file';
      if (n % 3 === 0) return null;
      const rest = { url, name: 'told', parent: parentOf(n) };
      return kind === 'folder'
        ? { kind, ...rest }
        : { kind, ...rest, sizeBytes: 3, lastModifiedMs: 1, mediaType: null, presentOnServer: true };
    });
    return;
  }
  const shown = [...store.all('node')].filter(([, { local }]) => local !== null).map(([, node]) => node);
  const some = shown[step.at % shown.length];
  const target = shown[step.to % shown.length];
  if (some?.local == null || target === undefined) return;
  const { parent, name } = some.local;
  try {
    if (step.do === 'make') {
      const made = localFile(tree, target.ino, step.name, step.at % 2 === 0 ? 'folder' : 'file');
      if (made.kind !== 'file') return;
      const content = store.transact((tx) => fixture.contents.createDraft(tx, null));
      tree.change(made.ino, { content, sizeBytes: 5 });
    } else if (some.ino === ROOT_INODE) return;
    else if (step.do === 'remove') tree.remove(parent, name, some.kind === 'folder' ? 'folder' : 'file');
    else if (step.do === 'rename') tree.rename(parent, name, target.ino, step.name, 'replace');
    else acknowledge(fixture, some.ino);
  } catch (error) {
    if (!(error instanceof FsError)) throw error;
  }
}

test('arbitrary listings leave the tree consistent and local files in place', () => {
  fc.assert(
    fc.property(fc.array(stepOf, { minLength: 1, maxLength: 25 }), (steps) => {
      const fixture = makeTree();
      const { store } = fixture;
      for (const step of steps) {
        const made = [...store.all('node')].filter(([, node]) => isContentDirty(node)).map(([ino]) => ino);
        act(fixture, step);
        checkStore(store);
        if (step.do !== 'list') continue;
        for (const ino of made) expect(store.get('node', ino)?.local, `node ${ino}`).toBeTruthy();
      }
    }),
    { numRuns: Number(process.env.CFS_TREE_RUNS ?? 150) },
  );
});
