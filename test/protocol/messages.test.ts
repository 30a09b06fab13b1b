import { readdirSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  decodeAppAuthorization,
  decodeAuthorization,
  decodeCollectionContents,
  decodeFile,
  decodeFileCopy,
  decodeFileUpdate,
  decodeFileVersions,
  decodeFolder,
  decodeFolderUpdate,
  decodeNewFile,
  decodeReceivedShares,
  decodeUser,
  encodeCollectionContents,
  encodeFile,
  encodeFileCopy,
  encodeNewFolder,
} from '../../src/protocol/messages.ts';
import { rootName } from '../../src/protocol/xml.ts';
import { DOCUMENTS, recorded } from './recorded.ts';

const BASE = 'https://api.example.com';
const LONG_AGO = Date.parse('2011-08-28T23:03:48-07:00');

describe('what a recorded document says', () => {
  test('about a token', () => {
    expect(decodeAuthorization(recorded('authorization'))).toEqual({
      expiration: LONG_AGO,
      user: `${BASE}/user/566494`,
    });
    expect(decodeAppAuthorization(recorded('app-authorization'))).toMatchObject({ password: 'p&ss <word> ' });
  });

  test('about a user', () => {
    expect(decodeUser(recorded('user'))).toMatchObject({
      quota: { limit: 32_212_254_720, usage: 1_281_450 },
      syncfolders: `${BASE}/user/566494/folders/contents`,
      magicBriefcase: `${BASE}/folder/:sc:566494:2`,
      maximumPublicLinkSize: 25,
    });
  });

  test('about a user without a limit: as much as can be said', () => {
    const without = recorded('user').toString().replace('32212254720', '9223372036854775807');

    expect(decodeUser(without)).toMatchObject({ quota: { limit: Number.MAX_SAFE_INTEGER, usage: 1_281_450 } });
  });

  test('about folders', () => {
    expect(decodeFolder(recorded('folder'))).toMatchObject({ dsid: '/sc/566494/2', sharing: { enabled: false } });
    expect(decodeFolder(recorded('folder'))).not.toHaveProperty('parent');
    expect(decodeFolder(recorded('folder-shared'))).toMatchObject({
      parent: `${BASE}/folder/:sc:566494:2`,
      sharing: { enabled: true, readAllowed: true, writeAllowed: false },
    });
    expect(decodeFolderUpdate(recorded('folder-update-whole'))).toEqual(decodeFolderUpdate(recorded('folder-update')));
  });

  test('about a folder’s contents', () => {
    expect(decodeCollectionContents(recorded('contents-folder'))).toEqual({
      start: 0,
      hasMore: false,
      end: 1,
      collections: [
        {
          type: 'folder',
          displayName: 'sub',
          ref: `${BASE}/folder/:sc:566494:211_5`,
          contents: `${BASE}/folder/:sc:566494:211_5/contents`,
        },
      ],
      files: [
        {
          displayName: 'testfile002',
          ref: `${BASE}/file/:sc:566494:190_42`,
          size: 12_345,
          lastModified: LONG_AGO,
          mediaType: 'text/plain; charset=utf-8',
          presentOnServer: true,
          fileData: `${BASE}/file/:sc:566494:190_42/data`,
        },
      ],
    });
    const { files } = decodeCollectionContents(recorded('contents-stubs'));
    expect(files.map(({ size, presentOnServer, fileData }) => [size, presentOnServer, fileData !== undefined])).toEqual(
      [
        [-1, false, false],
        [0, true, true],
        [-1, false, false],
      ],
    );
    expect(decodeCollectionContents(recorded('contents-empty'))).toMatchObject({ collections: [], files: [] });
  });

  test('about names, exactly', () => {
    expect(decodeCollectionContents(recorded('contents-names')).files.map((file) => file.displayName)).toEqual([
      '007',
      ' a ',
      `"q'&amp;<b>`,
      '<x>&amp;',
      'a\rb\nc\td',
      'Grün 日本 😀 e\u0301',
    ]);
  });

  test('about files', () => {
    expect(decodeFile(recorded('file'))).toMatchObject({
      size: 95_231,
      publicLink: { enabled: true, url: 'https://www.example.com/pf/D566494_190_48' },
      image: { height: 1200, width: 1600, rotation: 0 },
    });
    expect(decodeNewFile(recorded('new-file-without-type'))).toEqual({ displayName: 'sample.txt', mediaType: '' });
    expect(decodeFileUpdate(recorded('file-update-link'))).toEqual({ publicLink: { enabled: true } });
    expect(decodeFileCopy(recorded('file-copy')).source).toBe(`${BASE}/file/:sc:1001:5012_5013`);
  });

  test('about versions: a size where complete, a stored size where not', () => {
    expect(
      decodeFileVersions(recorded('file-versions')).versions.map(({ size, storedSize, presentOnServer }) => [
        presentOnServer,
        size,
        storedSize,
      ]),
    ).toEqual([
      [false, undefined, 1024],
      [true, 95_231, undefined],
    ]);
  });

  test('about shares', () => {
    expect(decodeReceivedShares(recorded('received-shares')).shares).toEqual([
      {
        ref: `${BASE}/receivedShare/566494/:sc:7585140:211_9`,
        displayName: 'Trip',
        timeReceived: Date.parse('2011-07-01T12:00:00-07:00'),
        sharedFolder: `${BASE}/folder/:sc:7585140:211_9`,
        permissions: { readAllowed: true, writeAllowed: false },
        owner: `${BASE}/contact/566494/7585140`,
      },
    ]);
  });
});

test('every recorded document has its place here', () => {
  const files = readdirSync(new URL('./recorded', import.meta.url)).map((file) => file.replace(/\.xml$/, ''));

  expect(files.sort()).toEqual(DOCUMENTS.map(({ name }) => name).sort());
});

describe.each(DOCUMENTS)('$name', ({ name, decode, encode }) => {
  test('the document is equal after it was written and parsed', () => {
    const document = decode(recorded(name));

    expect(decode(encode(document as never))).toEqual(document);
  });

  test('the document is equal for any split of its bytes', async () => {
    const bytes = Buffer.from(recorded(name));
    const document = decode(bytes);

    for (const length of [1, 2, 7, 100]) {
      const chunks = (async function* () {
        for (let at = 0; at < bytes.byteLength; at += length) yield bytes.subarray(at, at + length);
      })();
      expect(await decode(chunks)).toEqual(document);
    }
  });

  test('the document is recognized by its root element', () => {
    expect(recorded(name)).toContain(`<${rootName(recorded(name))}`);
  });

  test('may say more than we know, in any place', () => {
    const news = '<soon><displayName>y</displayName><size>x</size></soon>';
    const root = rootName(recorded(name));
    const open = recorded(name).replace(new RegExp(`(<${root}[^>]*?)/>`), `$1></${root}>`);
    const more = open
      .replace(new RegExp(`<${root}([ >])`), `<${root} later="x"$1`)
      .replace(
        /(?<=>)<\/(file|folder|collection|user|quota|fileVersion|receivedShare|permissions|image)>/g,
        `${news}$&`,
      )
      .replace(new RegExp(`</${root}>`), `${news}$&`);

    expect(more).toContain(news);
    expect(decode(more)).toEqual(decode(recorded(name)));
  });
});

test('the order of elements does not matter', () => {
  const entry = [
    '<displayName>a</displayName>',
    '<ref>u</ref>',
    '<size>3</size>',
    '<presentOnServer>true</presentOnServer>',
  ];
  const expected = { displayName: 'a', ref: 'u', size: 3, presentOnServer: true };

  fc.assert(
    fc.property(fc.shuffledSubarray(entry, { minLength: 4 }), (parts) => {
      const document = `<collectionContents><file>${parts.join('\n')}</file></collectionContents>`;
      expect(decodeCollectionContents(document).files).toEqual([expected]);
    }),
  );
});

// biome-ignore lint/suspicious/noControlCharactersInRegex: XML 1.0 knows them not
const WRITABLE = /^[^\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff\p{Surrogate}]*$/u;
const anyText = fc
  .oneof(fc.string({ unit: 'grapheme' }), fc.string({ unit: 'binary' }), fc.string())
  .filter((text) => WRITABLE.test(text));

describe('any text that XML can carry', () => {
  test('comes back as it was, as an element', () => {
    fc.assert(
      fc.property(fc.array(anyText), (names) => {
        const files = names.map((displayName) => ({ displayName, ref: 'u', size: 0 }));
        const document = { collections: [], files };

        expect(
          decodeCollectionContents(encodeCollectionContents(document)).files.map((file) => file.displayName),
        ).toEqual(names);
      }),
    );
  });

  test('comes back as it was, as an attribute', () => {
    const url = anyText.map((text) => `http://x/${text.replace(/\s/gu, '')}y`);
    fc.assert(
      fc.property(url, (source) => {
        expect(decodeFileCopy(encodeFileCopy({ source, displayName: '' })).source).toBe(source);
      }),
    );
  });
});

test.each(['\u0000', '\u0001', '\u000b', '\u001f', '\ufffe', '\ud800', 'a\udc00b'])('%j is never written', (name) => {
  expect(() => encodeNewFolder({ displayName: name })).toThrow(
    /^folder\.displayName: U\+[0-9A-F]{4} cannot be written in XML$/,
  );
});

test('what is absent is not written, and what is written has a declaration', () => {
  expect(encodeFile({ displayName: 'a', size: -1, presentOnServer: false, lastModified: undefined })).toBe(
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?><file><displayName>a</displayName><size>-1</size>' +
      '<presentOnServer>false</presentOnServer></file>',
  );
});
