import { describe, expect, test } from 'vitest';
import { ProtocolError } from '../../src/base/errors.ts';
import {
  decodeCollectionContents,
  decodeFile,
  decodeFileUpdate,
  decodeFolder,
  decodeUser,
} from '../../src/protocol/messages.ts';
import { rootName } from '../../src/protocol/xml.ts';

function failureOf(act: () => unknown): string {
  try {
    return `no failure: ${JSON.stringify(act())}`;
  } catch (error) {
    expect(error).toBeInstanceOf(ProtocolError);
    return (error as Error).message;
  }
}

const contents = (inner: string) => `<collectionContents>${inner}</collectionContents>`;

describe('a mismatch names its place:', () => {
  test.each<[string, () => unknown, string]>([
    [
      'an integer',
      () =>
        decodeCollectionContents(contents('<file><displayName>a</displayName><ref>u</ref><size>12.5</size></file>')),
      'collectionContents.file[0].size: expected an integer, got "12.5"',
    ],
    [
      'an integer that a double does not hold',
      () => decodeFile('<file><displayName>a</displayName><size>9007199254740993</size></file>'),
      'file.size: expected an integer, got "9007199254740993"',
    ],
    [
      'a missing element of the second entry',
      () =>
        decodeCollectionContents(
          contents(
            '<file><displayName>a</displayName><ref>u</ref><size>1</size></file><file><ref>u</ref><size>1</size></file>',
          ),
        ),
      'collectionContents.file[1]: no displayName',
    ],
    [
      'an attribute',
      () => decodeFileUpdate('<file><publicLink enabled="yes"/></file>'),
      'file.publicLink.@enabled: expected true or false, got "yes"',
    ],
    ['a missing attribute', () => decodeFileUpdate('<file><publicLink/></file>'), 'file.publicLink: no @enabled'],
    [
      'a date',
      () =>
        decodeFile(
          '<file><displayName>a</displayName><size>1</size><lastModified>2011-02-30T00:00:00.000Z</lastModified></file>',
        ),
      'file.lastModified: expected a dateTime, got "2011-02-30T00:00:00.000Z"',
    ],
    [
      'an element twice',
      () => decodeFolder('<folder><displayName>a</displayName><displayName>b</displayName></folder>'),
      'folder: <displayName> comes twice',
    ],
    [
      'an element in a text',
      () => decodeFolder('<folder><displayName>a<b/></displayName></folder>'),
      'folder.displayName: expected a text, got <b>',
    ],
    [
      'an address with a space',
      () => decodeFolder('<folder><displayName>a</displayName><contents>a b</contents></folder>'),
      'folder.contents: expected a word, got "a b"',
    ],
    [
      'an empty address that must be there',
      () => decodeFolder('<folder><displayName>a</displayName><contents/></folder>'),
      'folder.contents: expected a word, got ""',
    ],
    ['the root', () => decodeFolder('<file/>'), 'expected <folder>, got <file>'],
    [
      'a nested element',
      () => decodeUser('<user><quota><limit>x</limit></quota></user>'),
      'user.quota.limit: expected an integer, got "x"',
    ],
    [
      'a long value, shortened',
      () => decodeFolder(`<folder><contents>${'x '.repeat(60)}</contents></folder>`),
      `folder.contents: expected a word, got "${'x '.repeat(20)}…"`,
    ],
  ])('%s', (_what, act, message) => {
    expect(failureOf(act)).toBe(message);
  });
});

test('an empty element of a type that has no empty value is absent, where it may be', () => {
  const file = decodeFile('<file><displayName/><size>1</size><lastModified/><image/></file>'.replace('<image/>', ''));

  expect(file).toEqual({ displayName: '', size: 1 });
});

test('white space round numbers, flags and addresses is not part of them; in names it is', () => {
  const file = decodeFile(
    '<file>\n<displayName>\n a\t</displayName>\n <size> 12\n</size><parent>\n u </parent>\n</file>\n',
  );

  expect(file).toEqual({ displayName: '\n a\t', size: 12, parent: 'u' });
});

describe('what is not a document', () => {
  test.each<[string, string | Uint8Array]>([
    ['nothing', ''],
    ['white space', ' \n'],
    ['a sentence', 'Service Unavailable'],
    ['an HTML page', '<html><head><meta charset=utf-8></head><body><p>x</body></html>'],
    ['a page in XHTML', '<html><body/></html>'],
    ['a truncated document', '<folder><displayName>a</displayName>'],
    ['a truncated tag', '<folder><displayName>a</displayNa'],
    ['mismatched tags', '<folder><displayName>a</folder></displayName>'],
    ['two roots', '<folder><displayName>a</displayName><contents>c</contents></folder><folder/>'],
    ['text after the root', '<folder><displayName>a</displayName><contents>c</contents></folder>x'],
    ['an unknown entity', '<folder><displayName>&nbsp;</displayName></folder>'],
    [
      'a custom entity',
      '<!DOCTYPE folder [<!ENTITY a "b">]><folder><displayName>&a;</displayName><contents>c</contents></folder>',
    ],
    [
      'an external entity',
      '<!DOCTYPE folder SYSTEM "file:///etc/passwd"><folder><displayName>a</displayName><contents>c</contents></folder>',
    ],
    ['a control character', '<folder><displayName>a\u0001</displayName><contents>c</contents></folder>'],
    ['a reference to one', '<folder><displayName>&#1;</displayName><contents>c</contents></folder>'],
    [
      'bytes that are not UTF-8',
      Buffer.from('<folder><displayName>\xff</displayName><contents>c</contents></folder>', 'latin1'),
    ],
    ['UTF-16', Buffer.from('\ufeff<folder><displayName>a</displayName><contents>c</contents></folder>', 'utf16le')],
    [
      'half a character at the end',
      Buffer.concat([Buffer.from('<folder><contents>c</contents></folder>'), Buffer.from([0xc3])]),
    ],
    [
      'another encoding',
      '<?xml version="1.0" encoding="ISO-8859-1"?><folder><displayName>a</displayName><contents>c</contents></folder>',
    ],
    ['XML 1.1', '<?xml version="1.1"?><folder><displayName>a</displayName><contents>c</contents></folder>'],
    ['an attribute twice', '<folder a="1" a="2"><displayName>a</displayName><contents>c</contents></folder>'],
  ])('%s is a ProtocolError', (_what, body) => {
    expect(failureOf(() => decodeFolder(body))).not.toMatch(/^no failure/);
  });

  test('a byte order mark is not part of it', () => {
    expect(decodeFolder('\ufeff<folder><displayName>a</displayName><contents>c</contents></folder>').displayName).toBe(
      'a',
    );
  });
});

describe('a limit', () => {
  const entry = '<file><displayName>a</displayName><ref>u</ref><size>1</size></file>';
  const folder = (inner: string) => `<folder><displayName>a</displayName><contents>c</contents>${inner}</folder>`;
  const deep = (levels: number) => folder('<x>'.repeat(levels) + '</x>'.repeat(levels));
  const attributes = (count: number) =>
    folder(`<sharing enabled="true" ${Array.from({ length: count }, (_, i) => `a${i}=""`).join(' ')}/>`);

  test.each<[string, () => unknown, () => unknown]>([
    [
      'of bytes',
      () => decodeFolder(folder(''), { bytesMax: folder('').length }),
      () => decodeFolder(folder(''), { bytesMax: folder('').length - 1 }),
    ],
    ['of depth', () => decodeFolder(deep(3), { depthMax: 4 }), () => decodeFolder(deep(4), { depthMax: 4 })],
    [
      'of entries',
      () => decodeCollectionContents(contents(entry.repeat(3)), { entriesMax: 3 }),
      () => decodeCollectionContents(contents(entry.repeat(4)), { entriesMax: 3 }),
    ],
    [
      'of text',
      () =>
        decodeFolder(`<folder><displayName>${'a'.repeat(100)}</displayName><contents>c</contents></folder>`, {
          textMax: 100,
        }),
      () =>
        decodeFolder(`<folder><displayName>${'a'.repeat(101)}</displayName><contents>c</contents></folder>`, {
          textMax: 100,
        }),
    ],
    [
      'of text in pieces',
      () =>
        decodeFolder(
          `<folder><displayName>${'a<![CDATA[b]]>'.repeat(50)}</displayName><contents>c</contents></folder>`,
          { textMax: 100 },
        ),
      () =>
        decodeFolder(
          `<folder><displayName>${'a<![CDATA[b]]>'.repeat(51)}</displayName><contents>c</contents></folder>`,
          { textMax: 100 },
        ),
    ],
    [
      'of one attribute',
      () => decodeFolder(folder(`<sharing enabled="true" a="${'a'.repeat(100)}"/>`), { textMax: 100 }),
      () => decodeFolder(folder(`<sharing enabled="true" a="${'a'.repeat(101)}"/>`), { textMax: 100 }),
    ],
    [
      'of attributes',
      () => decodeFolder(attributes(7), { attributesMax: 8 }),
      () => decodeFolder(attributes(8), { attributesMax: 8 }),
    ],
    [
      'of what tells us nothing',
      () => decodeFolder(folder(`<!--${'-x'.repeat(20_000)}-->`.replace(/--(?=-)/g, '-')), { textMax: 100 }),
      () => decodeFolder(folder(`<!--${'x'.repeat(200_000)}-->`), { textMax: 100 }),
    ],
  ])('%s holds, and no earlier', (_what, within, beyond) => {
    within();

    expect(failureOf(beyond)).toMatch(/longer|deeper|more than|too long/);
  });
});

test('a listing of any length gives other work its turn', async () => {
  const entry = Buffer.from(
    '<file><displayName>some name or other.txt</displayName><ref>http://x/y</ref><size>1</size></file>',
  );
  const chunk = Buffer.concat(Array.from({ length: 600 }, () => entry)); // 55 kB
  let turns = 0;
  let done = false;
  const count = () => {
    turns += 1;
    if (!done) setImmediate(count);
  };
  count();

  const { files } = await decodeCollectionContents(
    (async function* () {
      yield Buffer.from('<collectionContents>');
      for (let i = 0; i < 60; i++) yield chunk;
      yield Buffer.from('</collectionContents>');
    })(),
  );
  done = true;

  expect(files).toHaveLength(36_000);
  expect(turns).toBeGreaterThan(10);
});

describe('the name of the root', () => {
  test.each([
    ['<folder>', 'folder'],
    ['<?xml version="1.0"?>\n<!-- x -->\n <syncFolder a="b">', 'syncFolder'],
    ['<fileCopy/>', 'fileCopy'],
    [`<!--${'x'.repeat(1000)}--><file>`, 'file'],
  ])('of %s', (body, name) => {
    expect(rootName(body)).toBe(name);
  });

  test.each(['', 'x', '<', '<?xml version="1.0"?>', '<!DOCTYPE a><folder/>', '</folder>'])(
    '%j has no root name',
    (body) => {
      expect(() => rootName(body)).toThrow(ProtocolError);
    },
  );
});
