import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { RemoteEntry } from '../../src/base/resources.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { encodeCollectionContents } from '../../src/protocol/messages.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { clientOf } from './client.ts';
import { reply, ScriptedServer, type Step, xml } from './scripted-server.ts';

let server: ScriptedServer;
let service: HttpService;

beforeEach(async () => {
  server = await ScriptedServer.start();
  service = clientOf(server.baseUrl);
});

afterEach(async () => {
  await service.close();
  await server.close();
});

const folder = () => server.url('/folder/:sc:1:1') as ResourceUrl;

interface Manner {
  readonly end?: 'inclusive' | 'exclusive' | 'absent';
  readonly hasMore?: 'told' | 'absent';
  /** The most entries the service gives, whatever is asked. */
  readonly cap?: number;
}

/** Serves pages of what `names` holds at the moment of each request. */
function pages(names: () => readonly string[], { end = 'inclusive', hasMore = 'told', cap = 1000 }: Manner = {}): Step {
  return {
    act: (socket, request) => {
      const query = new URL(request.path, server.baseUrl).searchParams;
      const start = Number(query.get('start') ?? 0);
      const all = names();
      const page = all.slice(start, start + Math.min(cap, Number(query.get('max') ?? 500)));
      const last = page.length === 0 ? start : start + page.length - 1;
      const isFolder = (name: string) => name.startsWith('folder');
      const ref = (name: string) =>
        server.url(`/${isFolder(name) ? 'folder' : 'file'}/:sc:1:${name.replace(/\D/g, '')}`);
      const document = encodeCollectionContents({
        start,
        end: end === 'absent' ? undefined : end === 'inclusive' ? last : start + page.length,
        hasMore: hasMore === 'absent' ? undefined : start + page.length < all.length,
        collections: page.filter(isFolder).map((name) => ({ type: 'folder', displayName: name, ref: ref(name) })),
        files: page.filter((name) => !isFolder(name)).map((name) => ({ displayName: name, ref: ref(name), size: 1 })),
      });
      xml(document).act(socket, request);
    },
  };
}

const names = (entries: readonly RemoteEntry[]) => entries.map((entry) => entry.name);

describe('a listing is complete and exact', () => {
  const all = Array.from({ length: 1234 }, (_, i) => (i < 30 ? `folder ${i}` : `file ${i}`));

  test.each<[string, Manner]>([
    ['as documented', {}],
    ['when end is counted the other way', { end: 'exclusive' }],
    ['without end', { end: 'absent' }],
    ['without hasMore', { hasMore: 'absent' }],
    ['when the service gives fewer than asked for', { cap: 100 }],
    ['when it gives fewer and does not say whether there are more', { cap: 100, hasMore: 'absent', end: 'absent' }],
    ['when it gives seven at a time', { cap: 7 }],
  ])('%s', async (_what, manner) => {
    server.otherwise = pages(() => all, manner);

    expect(names(await service.list(folder()))).toEqual(all);
  });

  test.each([1, 2, 3])('when it gives no more than %i at a time', async (cap) => {
    server.otherwise = pages(() => all.slice(0, 40), { cap });

    expect(names(await service.list(folder()))).toEqual(all.slice(0, 40));
  });

  test.each([0, 1, 499, 500, 501, 1000])('with %i entries', async (count) => {
    server.otherwise = pages(() => all.slice(0, count));

    expect(names(await service.list(folder()))).toEqual(all.slice(0, count));
    expect(server.requests).toHaveLength(Math.max(1, Math.ceil(count / 500)));
  });
});

describe('while others change the folder,', () => {
  const all = Array.from({ length: 1200 }, (_, i) => `file ${i}`);
  const afterFirst = (changed: readonly string[]) => {
    let requests = 0;
    return pages(() => (requests++ === 0 ? all : changed));
  };

  test('an entry that moves to the next page is listed once', async () => {
    const changed = ['file 9000', ...all];
    server.otherwise = afterFirst(changed);

    expect(names(await service.list(folder())).sort()).toEqual(changed.toSorted());
  });

  test('an entry that slips into a page already read is not missed: all is read again', async () => {
    const changed = all.slice(1);
    server.otherwise = afterFirst(changed);

    expect(names(await service.list(folder()))).toEqual(changed);
    expect(server.requests).toHaveLength(6);
  });

  test('the reading again ends', async () => {
    let requests = 0;
    server.otherwise = pages(() => all.slice(requests++));

    const listed = await service.list(folder());

    expect(new Set(names(listed)).size).toBe(listed.length);
    expect(server.requests.length).toBeLessThanOrEqual(9);
  });
});

test('a page says whether another is to be asked for, and when it was made', async () => {
  server.steps = [
    xml(encodeCollectionContents({ hasMore: true, collections: [], files: [] }), {
      Date: 'Mon, 02 Jan 2006 15:04:05 GMT',
    }),
  ];

  expect(await service.listPage(folder(), 3)).toEqual({
    entries: [],
    hasMore: false, // an empty page is the end, whatever it says: there is nowhere to go on from
    serverTimeMs: Date.UTC(2006, 0, 2, 15, 4, 5),
  });
  expect(server.requests[0]?.path).toBe('/folder/:sc:1:1/contents?start=3&max=500');
});

test('a service that ignores start does not keep us for ever', async () => {
  const page = encodeCollectionContents({
    hasMore: true,
    collections: [],
    files: [{ displayName: 'a', ref: server.url('/file/:sc:1:1'), size: 0 }],
  });
  server.otherwise = xml(page);

  await expect(service.list(folder())).rejects.toMatchObject({ name: 'ProtocolError' });
  expect(server.requests.length).toBeLessThan(10);
});

describe('an entry', () => {
  const listed = async (file: string) => {
    server.otherwise = xml(`<collectionContents hasMore="false">${file}</collectionContents>`);
    return (await service.list(folder()))[0];
  };

  test('an entry without a version has no size', async () => {
    const stub =
      '<file><displayName>s</displayName><ref>r</ref><size>-1</size><presentOnServer>false</presentOnServer></file>';

    expect(await listed(stub)).toEqual({
      kind: 'file',
      url: 'r',
      name: 's',
      sizeBytes: null,
      lastModifiedMs: null,
      mediaType: null,
      presentOnServer: false,
    });
  });

  test('an entry of length 0 is listed', async () => {
    const empty =
      '<file><displayName>s</displayName><ref>r</ref><size>0</size><presentOnServer>true</presentOnServer></file>';

    expect(await listed(empty)).toMatchObject({ sizeBytes: 0, presentOnServer: true });
  });

  test.each([
    ...['folder', 'syncFolder', 'workspace', 'album'].map((type) => [type, `type="${type}"`]),
    ['that nobody has heard of', 'type="team folder"'],
    ['that is not said', ''],
  ])('of type %s is a folder', async (_which, type) => {
    expect(await listed(`<collection ${type}><displayName> a </displayName><ref> u </ref></collection>`)).toEqual({
      kind: 'folder',
      url: 'u',
      name: ' a ',
    });
  });
});

describe('a resource', () => {
  test('a deleted resource is null', async () => {
    server.otherwise = reply(404);

    expect(await service.resource(folder(), 'folder')).toBeNull();
  });

  test('says where it lies', async () => {
    server.otherwise = xml('<folder><displayName>a</displayName><parent>p</parent><contents>c</contents></folder>');

    expect(await service.resource(folder(), 'folder')).toEqual({
      kind: 'folder',
      url: folder(),
      name: 'a',
      parent: 'p',
    });
  });

  test('a link is requested as the file that it is on the service', async () => {
    server.otherwise = xml(
      '<file><displayName>a</displayName><size>3</size><mediaType>inode/symlink</mediaType></file>',
    );

    expect(await service.resource(server.url('/file/:sc:1:2') as ResourceUrl, 'symlink')).toMatchObject({
      kind: 'file',
      mediaType: 'inode/symlink',
    });
  });
});

test('a new sync folder, whose address the service does not tell, is found in the listing', async () => {
  const top = server.url('/user/1/folders') as ResourceUrl;
  server.steps = [reply(201), pages(() => ['folder 1', 'folder 7'])];

  expect(await service.createFolder(top, 'folder 7')).toBe(server.url('/folder/:sc:1:7'));
  expect(server.requests[0]).toMatchObject({ method: 'POST', path: '/user/1/folders' });
  expect(server.requests[0]?.headers['x-sugarsync-api-version']).toBe('1.5');
  expect(server.requests[0]?.body.toString()).toContain('<syncFolder><displayName>folder 7</displayName></syncFolder>');
});

test('deleting or trashing what is gone already is success', async () => {
  server.otherwise = {
    act: (socket, request) =>
      (request.path === '/user/1'
        ? xml(
            '<user><username>u</username><syncfolders>s/contents</syncfolders><deleted>d</deleted><magicBriefcase>m</magicBriefcase></user>',
          )
        : reply(404)
      ).act(socket, request),
  };

  await service.deleteForever(folder(), 'folder');
  expect(server.requests.map(({ method }) => method)).toEqual(['DELETE', 'GET']);
  await service.moveToTrash(folder(), 'folder', 'a');

  const [moving, asking] = server.requests.slice(-2);
  expect(moving?.body.toString()).toContain('<displayName>a</displayName><parent>d</parent>');
  // Only the resource itself is believed that it is gone.
  expect(asking).toMatchObject({ method: 'GET', path: moving?.path });
});

describe('the versions of a file', () => {
  const version = (id: number, state: string) => `<fileVersion>${state}<ref>v${id}</ref></fileVersion>`;
  const complete = '<size>5</size><presentOnServer>true</presentOnServer>';
  const partial = '<storedSize>2</storedSize><presentOnServer>false</presentOnServer>';

  test('come newest first; the newest complete one is what is read', async () => {
    server.otherwise = xml(
      `<fileVersions>${version(3, partial)}${version(2, complete)}${version(1, complete)}</fileVersions>`,
    );
    const file = server.url('/file/:sc:1:2') as ResourceUrl;

    expect((await service.versions(file)).map(({ url, complete, sizeBytes }) => [url, complete, sizeBytes])).toEqual([
      ['v3', false, 2],
      ['v2', true, 5],
      ['v1', true, 5],
    ]);
    expect(await service.newestVersion(file)).toMatchObject({ url: 'v2' });
  });

  test('hide none where somebody’s upload does not say how far it is', async () => {
    const begun = '<presentOnServer>false</presentOnServer>';
    server.otherwise = xml(`<fileVersions>${version(2, begun)}${version(1, complete)}</fileVersions>`);
    const file = server.url('/file/:sc:1:2') as ResourceUrl;

    expect((await service.versions(file)).map(({ complete, sizeBytes }) => [complete, sizeBytes])).toEqual([
      [false, 0],
      [true, 5],
    ]);
  });

  test('the versions of a file are complete over several pages', async () => {
    const all = Array.from({ length: 1_000 }, (_, n) => version(n, complete));
    server.otherwise = {
      act: (socket, request) => {
        const start = Number(new URL(request.path, server.baseUrl).searchParams.get('start') ?? 0);
        const page = all.slice(start, start + 300);
        xml(`<fileVersions hasMore="${start + 300 < all.length}">${page.join('')}</fileVersions>`).act(socket, request);
      },
    };

    const versions = await service.versions(server.url('/file/:sc:1:2') as ResourceUrl);

    expect(versions.map(({ url }) => url)).toEqual(all.map((_, n) => `v${n}`));
  });

  test('the versions of a file are requested only up to the wanted one', async () => {
    const all = Array.from({ length: 1_000 }, (_, n) =>
      version(n, n === 0 ? partial : n === 450 ? complete.replace('5', '7') : complete),
    );
    let asked = 0;
    server.otherwise = {
      act: (socket, request) => {
        asked++;
        const start = Number(new URL(request.path, server.baseUrl).searchParams.get('start') ?? 0);
        const page = all.slice(start, start + 300);
        xml(`<fileVersions hasMore="${start + 300 < all.length}">${page.join('')}</fileVersions>`).act(socket, request);
      },
    };
    const file = server.url('/file/:sc:1:2') as ResourceUrl;

    expect([(await service.newestVersion(file))?.url, asked]).toEqual(['v1', 1]);
    expect([(await service.versionOfLength(file, 7))?.url, asked]).toEqual(['v450', 3]);
    expect([await service.versionOfLength(file, 8), asked]).toEqual([null, 7]);
  });

  test('an endless list of versions is abandoned beyond the largest possible number', async () => {
    let told = 0;
    server.otherwise = {
      act: (socket, request) => {
        const page = Array.from({ length: 5_000 }, () => version(told++, complete));
        // It does end one day: a client that goes on until then is not one that hangs, but one that says it was well.
        xml(`<fileVersions hasMore="${told < 150_000}">${page.join('')}</fileVersions>`).act(socket, request);
      },
    };

    await expect(service.versions(server.url('/file/:sc:1:2') as ResourceUrl)).rejects.toMatchObject({
      name: 'ProtocolError',
    });
    expect(told).toBe(105_000);
  });

  test('a version is the first of its file only where the history is whole and the service is known to keep old ones', async () => {
    const file = server.url('/file/:sc:1:2') as ResourceUrl;
    const one = xml(`<fileVersions>${version(2, partial)}${version(1, complete)}</fileVersions>`);
    const two = xml(`<fileVersions>${version(2, complete)}${version(1, complete)}</fileVersions>`);
    const more = xml(`<fileVersions hasMore="true">${version(1, complete)}</fileVersions>`);
    server.steps = [one, two, one, more];

    const firsts: (boolean | undefined)[] = [];
    for (let asked = 0; asked < 4; asked++) firsts.push((await service.newestVersion(file))?.isFirst);

    expect(firsts).toEqual([false, false, true, false]);
  });

  test('a deleted or empty file has no versions', async () => {
    const file = server.url('/file/:sc:1:2') as ResourceUrl;
    server.steps = [reply(404), xml('<fileVersions/>')];

    expect(await service.newestVersion(file)).toBeNull();
    expect(await service.newestVersion(file)).toBeNull();
  });

  test('without an address are known by that of their data', async () => {
    server.otherwise = xml(
      `<fileVersions><fileVersion>${complete}<fileData>v9/data</fileData></fileVersion></fileVersions>`,
    );

    expect(await service.newestVersion(server.url('/f') as ResourceUrl)).toMatchObject({ url: 'v9' });
  });

  test('without a length are not believed', async () => {
    server.otherwise = xml(
      '<fileVersions><fileVersion><presentOnServer>true</presentOnServer><ref>v</ref></fileVersion></fileVersions>',
    );

    await expect(service.newestVersion(server.url('/f') as ResourceUrl)).rejects.toMatchObject({
      name: 'ProtocolError',
    });
  });
});
