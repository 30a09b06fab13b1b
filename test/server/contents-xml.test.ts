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

  expect(await contentsXml(document, 'a')).toBe(encodeCollectionContents(document));
});

test('long listings of one caller are encoded one after another, others at any time', async () => {
  const encoded: string[] = [];
  const listing = (name: string, length: number) => ({
    start: 0,
    hasMore: false,
    end: length,
    collections: [],
    files: Array.from({ length }, (_, nth) => ({
      get displayName() {
        encoded.push(name);
        return `${nth}`;
      },
      ref: 'http://x/f',
      size: nth,
    })),
  });

  const long = [contentsXml(listing('first', 500), 'a'), contentsXml(listing('second', 500), 'a')];
  await contentsXml(listing('short', 1), 'a');
  const untilShort = encoded.length;
  const other = contentsXml(listing('of another caller', 101), 'b');
  await other;
  const untilOther = encoded.filter((name) => name === 'first').length;
  await Promise.all(long);

  expect(untilShort).toBeLessThan(500);
  expect(untilOther).toBeLessThan(500);
  const ofOne = encoded.filter((name) => name === 'first' || name === 'second');
  expect(ofOne.filter((name, at) => name !== ofOne[at - 1])).toEqual(['first', 'second']);
});

test('a long listing that cannot be encoded fails alone', async () => {
  const file = (displayName: string) => ({ displayName, ref: 'http://x/f', size: 1 });
  const listing = (displayName: string) => ({
    start: 0,
    hasMore: false,
    end: 200,
    collections: [],
    files: Array.from({ length: 200 }, () => file(displayName)),
  });

  const refused = contentsXml(listing('\u0000'), 'a');
  const sound = contentsXml(listing('name'), 'a');

  await expect(refused).rejects.toMatchObject({ name: 'ProtocolError' });
  expect(await sound).toBe(encodeCollectionContents(listing('name')));
});
