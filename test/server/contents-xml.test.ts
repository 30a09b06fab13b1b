import { expect, test } from 'vitest';
import { encodeCollectionContents } from '../../src/protocol/messages.ts';
import { contentsXml } from '../../src/server/contents-xml.ts';

/** A listing that is encoded in pieces is the same document. */

test.each([
  [0, 0],
  [3, 5],
  [100, 0],
  [100, 1],
  [150, 250],
  [0, 301],
  [301, 0],
])('a listing of %i folders and %i files', async (folders, files) => {
  const entry = (nth: number) => ({ displayName: `a > "b" & ${nth}`, ref: `http://x/${nth}`, contents: 'http://x/c' });
  const document = {
    start: 0,
    hasMore: true,
    end: folders + files,
    collections: Array.from({ length: folders }, (_, nth) => ({ ...entry(nth), type: 'folder' as const })),
    files: Array.from({ length: files }, (_, nth) => ({ displayName: `</${nth}>`, ref: 'http://x/f', size: nth })),
  };

  expect(await contentsXml(document)).toBe(encodeCollectionContents(document));
});
