import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  dsidOf,
  type Endpoint,
  formatListingQuery,
  parseListingQuery,
  parsePath,
  parseUrl,
  pathOf,
  shapeOf,
} from '../../src/protocol/endpoints.ts';

const ID = { uid: '1001', local: '5002_5003' };

const PATHS: readonly [string, Endpoint][] = [
  ['/app-authorization', { kind: 'appAuthorization', token: null }],
  ['/app-authorization/RT-1', { kind: 'appAuthorization', token: 'RT-1' }],
  ['/authorization', { kind: 'authorization', token: null }],
  ['/authorization/AT_1', { kind: 'authorization', token: 'AT_1' }],
  ['/user', { kind: 'user', uid: null }],
  ['/user/1001', { kind: 'user', uid: '1001' }],
  ['/user/1001/folders', { kind: 'userCollection', uid: '1001', collection: 'folders' }],
  ['/user/1001/folders/contents', { kind: 'userCollectionContents', uid: '1001', collection: 'folders' }],
  ['/user/1001/workspaces/contents', { kind: 'userCollectionContents', uid: '1001', collection: 'workspaces' }],
  ['/user/1001/albums/contents', { kind: 'userCollectionContents', uid: '1001', collection: 'albums' }],
  ['/user/1001/receivedShares/contents', { kind: 'userCollectionContents', uid: '1001', collection: 'receivedShares' }],
  ['/user/1001/publicLinks/contents', { kind: 'userCollectionContents', uid: '1001', collection: 'publicLinks' }],
  [
    '/user/1001/recentActivities/contents',
    { kind: 'userCollectionContents', uid: '1001', collection: 'recentActivities' },
  ],
  ['/folder/:sc:1001:5002_5003', { kind: 'folder', id: ID }],
  ['/folder/:sc:1001:2', { kind: 'folder', id: { uid: '1001', local: '2' } }],
  ['/folder/:sc:1001:5002_5003/contents', { kind: 'folderContents', id: ID }],
  ['/workspace/:sc:1001:5002_5003', { kind: 'workspace', id: ID }],
  ['/workspace/:sc:1001:5002_5003/contents', { kind: 'workspaceContents', id: ID }],
  ['/album/:sc:1001:5002_5003', { kind: 'album', id: ID }],
  ['/album/:sc:1001:5002_5003/contents', { kind: 'albumContents', id: ID }],
  ['/file/:sc:1001:5002_5003', { kind: 'file', id: ID }],
  ['/file/:sc:1001:5002_5003/data', { kind: 'fileData', id: ID }],
  ['/file/:sc:1001:5002_5003/version', { kind: 'fileVersions', id: ID }],
  ['/file/:sc:1001:5002_5003/version/190_7', { kind: 'fileVersion', id: ID, version: '190_7' }],
  ['/file/:sc:1001:5002_5003/version/190_7/data', { kind: 'fileVersionData', id: ID, version: '190_7' }],
  ['/receivedShare/7/:sc:1001:5002_5003', { kind: 'receivedShare', uid: '7', id: ID }],
  ['/contact/7/1001', { kind: 'contact', uid: '7', contact: '1001' }],
  ['/pf/D1001_5002_5003', { kind: 'publicLink', token: 'D1001_5002_5003' }],
];

describe.each(PATHS)('%s', (path, endpoint) => {
  test('an address of this shape can be built and parsed', () => {
    expect(parsePath(path)).toEqual(endpoint);
    expect(pathOf(endpoint)).toBe(path);
  });

  test('may have its colons encoded, and a slash at its end', () => {
    expect(parsePath(path.replaceAll(':', '%3A'))).toEqual(endpoint);
    expect(parsePath(path.replaceAll(':', '%3a'))).toEqual(endpoint);
    expect(parsePath(`${path}/`)).toEqual(endpoint);
  });

  test('an address with an extra suffix is not parsed', () => {
    for (const more of ['/x', '/..', '/%00', '//', '%2f', '%00', '..', '/contents/contents']) {
      const parsed = parsePath(path + more);
      // What is left may be another address, but never the same one.
      expect(parsed).not.toEqual(endpoint);
    }
  });
});

test.each([
  '',
  'folder/:sc:1:1',
  '/',
  '//',
  '/folder',
  '/folder/',
  '/folder/5002_5003',
  '/folder/:sc:1001',
  '/folder/:sc:1001:',
  '/folder/:sc::1',
  '/folder/:sc:1001:..',
  '/folder/:sc:1001:1%2f..%2f2',
  '/folder/:sc:1001:1%00',
  '/folder/:sc:1001:1:2',
  '/folder/:sc:1001:1_',
  '/folder/:sc:1001:1_2_3',
  '/folder/:sc:1001:%',
  '/folder/:xx:1001:1',
  '/folder/%2E%2E/:sc:1001:1',
  '/folder/:sc:1001:1/data',
  '/file/:sc:1001:1/contents',
  '/file/:sc:1001:1/version/../data',
  '/file/:sc:1001:1/version/1/2',
  '/user/me',
  '/user/1001/secrets',
  '/user/1001/folders/contents/more',
  '/FOLDER/:sc:1001:1',
  '/app-authorization/a/b',
  '/pf/',
  '/pf/a.b',
  '/contact/1',
])('%j addresses nothing', (path) => {
  expect(parsePath(path)).toBeNull();
});

test('no path makes the parser fail', () => {
  const piece = fc.oneof(
    fc.constantFrom('folder', 'file', 'user', ':sc:1:2', 'version', 'data', 'contents', '..', '%', '%zz', ''),
    fc.string(),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 9 }), (pieces) => {
      const endpoint = parsePath(`/${pieces.join('/')}`);
      // What is understood is understood in one way.
      if (endpoint !== null) expect(parsePath(pathOf(endpoint))).toEqual(endpoint);
    }),
  );
});

test('a full address is one below the base', () => {
  expect(parseUrl('http://h:1', 'http://h:1/folder/:sc:1:2?type=file')).toEqual({
    kind: 'folder',
    id: { uid: '1', local: '2' },
  });
  expect(parseUrl('http://h:1', 'http://h:12/folder/:sc:1:2')).toBeNull();
  expect(parseUrl('http://h:1/v1', 'http://h:1/v1/user')).toEqual({ kind: 'user', uid: null });
  expect(dsidOf(ID)).toBe('/sc/1001/5002_5003');
});

describe('the shape of an address, whatever its ids are', () => {
  test.each([
    ['/user/u-7', { kind: 'user', id: 'u-7' }],
    ['/user/a%2Fb/', { kind: 'user', id: 'a%2Fb' }],
    ['/user/u-7/folders', { kind: 'userCollection', id: 'u-7' }],
    ['/folder/:sc:1:2', { kind: 'folder', id: ':sc:1:2' }],
    ['/folder/7f3a?x=/user/1', { kind: 'folder', id: '7f3a' }],
    ['/workspace/laptop', { kind: 'workspace', id: 'laptop' }],
    ['/album/x', { kind: 'album', id: 'x' }],
    ['/file/x', { kind: 'file', id: 'x' }],
    ['/user', null],
    ['/user/u-7/receivedShares/contents', null],
    ['/user/u-7/secrets', null],
    ['/file/x/data', null],
    ['/authorization/x', null],
    ['', null],
  ])('%s', (path, shape) => {
    expect(shapeOf('https://service.example', `https://service.example${path}`)).toEqual(shape);
    expect(shapeOf('https://service.example/api/', `https://service.example/api${path}`)).toEqual(shape);
    expect(shapeOf('https://service.example', `HTTPS://service.example:443${path}`)).toEqual(shape);
  });

  test('an address on another server, above the base or without a URL has no shape', () => {
    for (const url of ['https://other.example/user/1', 'https://service.example/user/1', 'user/1', ''])
      expect(shapeOf('https://service.example/api', url)).toBeNull();
  });
});

describe('the query of a listing', () => {
  test('an address of this shape can be built and parsed', () => {
    const query = { type: 'file', start: 500, max: 100, order: 'last_modified' } as const;

    expect(formatListingQuery(query)).toBe('?type=file&start=500&max=100&order=last_modified');
    expect(parseListingQuery(new URLSearchParams(formatListingQuery(query)))).toEqual(query);
    expect(formatListingQuery({})).toBe('');
    expect(parseListingQuery(new URLSearchParams('x=y'))).toEqual({ type: null, start: null, max: null, order: null });
  });

  test.each(['type=album', 'order=colour', 'start=-1', 'start=x', 'max=0', 'max=1e3', 'max=', 'start=1.5'])(
    '%s is refused',
    (query) => {
      expect(() => parseListingQuery(new URLSearchParams(query))).toThrow(/^(type|order|start|max): /);
    },
  );
});
