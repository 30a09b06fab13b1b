import { expect, test } from 'vitest';
import { deletedSince } from '../../src/cli/commands/deleted-since.ts';
import type { EventRecord, MountEvent } from '../../src/control/event-model.ts';

const TRASHED = { type: 'deleted', to: 'trash' } as const;
const GONE = { type: 'received', change: 'deleted' } as const;

/** One event each second, from 1,000 ms on. */
const history = (...events: readonly MountEvent[]): readonly EventRecord[] =>
  events.map((event, index) => ({ seq: index + 1, atMs: (index + 1) * 1_000, event }));

/** [S-history-5] */
test('what was deleted in the folder after the time is found, here and elsewhere', () => {
  const events = history(
    { ...TRASHED, path: 'docs/before', url: 'u:1' },
    { ...TRASHED, path: 'docs/sub/here', url: 'u:2' },
    { ...GONE, path: 'docs/there', count: 1, url: 'u:3' },
    { ...TRASHED, path: 'docs2/beside', url: 'u:4' },
    { ...TRASHED, to: 'forever', path: 'docs/lost', url: 'u:5' },
    { ...TRASHED, path: 'docs/of an earlier version of the program' },
    { ...GONE, path: 'docs', count: 12 },
  );
  expect(deletedSince(events, 'docs', 1_000)).toEqual([
    { url: 'u:2', path: 'docs/sub/here', lastPath: 'docs/sub/here' },
    { url: 'u:3', path: 'docs/there', lastPath: 'docs/there' },
  ]);
  expect(deletedSince(events, '', 0).map(({ url }) => url)).toEqual(['u:1', 'u:2', 'u:3', 'u:4']);
  expect(deletedSince(events, 'docs', 7_000)).toEqual([]);
});

/** [S-history-5] */
test('renames after the time are undone, so that the place is that of the time', () => {
  const events = history(
    { type: 'renamed', from: 'docs/too early', to: 'docs/a' },
    { type: 'renamed', from: 'docs/a', to: 'docs/b' },
    { type: 'renamed-elsewhere', from: 'docs', to: 'papers' },
    { type: 'renamed', from: 'other/in', to: 'papers/in' },
    { ...TRASHED, path: 'papers/b', url: 'u:moved' },
    { ...TRASHED, path: 'papers/in', url: 'u:moved in since' },
  );
  expect(deletedSince(events, 'docs', 1_000)).toEqual([{ url: 'u:moved', path: 'docs/a', lastPath: 'papers/b' }]);
});

/** [S-history-5] */
test('of several deletions of one file, the first after the time counts', () => {
  const events = history({ ...TRASHED, path: 'docs/a', url: 'u:1' }, { ...TRASHED, path: 'elsewhere/a', url: 'u:1' });
  expect(deletedSince(events, '', 0)).toEqual([{ url: 'u:1', path: 'docs/a', lastPath: 'docs/a' }]);
});

/** [S-history-5] */
test.each([
  ['before', 0],
  ['after', 2],
  ['and after the deletion of', 3],
])('the rename of a folder is undone, whether it is reported before or after that of a file in it (%s)', (_, at) => {
  const events: MountEvent[] = [
    { type: 'renamed', from: 'docs/new/file', to: 'docs/other' },
    { type: 'renamed', from: 'docs/beside', to: 'docs/new/file' },
    { ...TRASHED, path: 'docs/other', url: 'u:1' },
  ];
  events.splice(at, 0, { type: 'renamed', from: 'docs/old', to: 'docs/new' });
  expect(deletedSince(history(...events), 'docs', 0)).toMatchObject([{ url: 'u:1', path: 'docs/old/file' }]);
});
