import { randomBytes } from 'node:crypto';
import { afterEach, expect, test } from 'vitest';
import { type Freedoms, OtherServer } from '../harness/other-server.ts';
import { ServedSide } from '../harness/served-side.ts';
import { RawClient } from '../server/raw-client.ts';

let server: OtherServer;
let side: ServedSide;
afterEach(async () => {
  await side.close();
  await server.close();
});

/** More than goes in one plain PUT, and in one block. */
const LARGE_BYTES = 1_500_000;

/** Long before anybody looks, and not at a whole second. */
const EARLIER_MS = Date.UTC(2026, 0, 1) + 123;

const CASES: Readonly<Record<string, Partial<Freedoms>>> = {
  'as cfs serve would': {},
  'with ids of another kind': { idOf: (kind, number) => `${kind}-${number}.7f3a~%C3%A9%2F` },
  'with small pages whose end is not said': { pageMax: 2, saysMore: false },
  'with pages of one': { pageMax: 1 },
  'with bodies that it takes in parts': { takesBytes: LARGE_BYTES / 2 - 1 },
  'with tokens for three requests, and busy now and then': { tokenUses: 3, busyEvery: 5 },
  'with a new address for each new name': { readdresses: true },
  'without ranges, lengths and lasting connections': { ranges: 'ignored', framing: 'end of the connection' },
  'with ranges that it gives in parts': { givesBytes: 100_000 },
  'without chunks': { framing: 'length' },
  'with pages that are called so': { framing: 'length', dataType: 'text/html;charset=UTF-8' },
  'without times in listings': { listedMs: () => null },
  'without times in histories': { historyMs: () => null },
  'without times': { listedMs: () => null, historyMs: () => null, hasDate: false },
  'without a clock': { hasDate: false },
  'with relative addresses in Location': { location: (url) => new URL(url).pathname },
  'with addresses in Location that are spelled in another way': { location: (url) => url.replace('http:', 'HTTP:') },
};

test.each(Object.entries(CASES))(
  'a service that implements the interface, %s, accepts and returns everything',
  async (_, how) => {
    server = await OtherServer.start(how);
    const texts = [0, 1, 2, 3, 4, 5, 6].map((n) => `text ${n}`);
    const papers = server.make('folder', server.briefcase, 'Papers & <more>');
    for (const text of texts) server.save(server.make('file', papers, text), text, EARLIER_MS);
    const theirs = randomBytes(LARGE_BYTES);
    server.save(server.make('file', papers, 'large'), theirs, EARLIER_MS);
    side = await ServedSide.build({
      uid: '1',
      email: 'someone@example.com',
      application: '/sc/1/1',
      accessKeyId: 'AK',
      privateAccessKey: 'PK',
      refreshToken: `${server.origin}/app-authorization/refresh`,
      client: new RawClient(server.origin),
      folder: () => server.url(server.briefcase),
    });
    const { mount } = side;
    const names = async (path: string) => (await mount.readdir(path)).map(({ name }) => name).sort();
    expect(await names('')).toEqual([papers.name]);
    expect(await names(papers.name)).toEqual(['large', ...texts]);
    expect((await mount.readFile(`${papers.name}/text 3`)).toString()).toBe('text 3');
    expect((await mount.readFile(`${papers.name}/large`)).equals(theirs)).toBe(true);

    const ours = randomBytes(LARGE_BYTES);
    await mount.mkdir('new');
    await mount.writeFile('new/small', Buffer.from('small'));
    await mount.writeFile('new/empty', Buffer.alloc(0));
    await mount.writeFile('new/large', ours);
    await side.converge();
    await mount.writeFile('new/small', Buffer.from('small again'));
    await mount.writeFile(`${papers.name}/text 1`, Buffer.from('mine'));
    await side.converge();
    await mount.rename('new/small', 'new/ünïcode & <x>');
    await mount.rename(`${papers.name}/text 2`, 'new/text two');
    await mount.rename('new', 'renamed');
    await mount.unlink(`${papers.name}/text 0`);
    await side.converge();
    await mount.writeFile('renamed/ünïcode & <x>', Buffer.from('third'));
    await side.converge();
    await side.side.freshness.refresh();
    await side.converge();

    const expected: [string, Buffer | null][] = [
      ['Papers & <more>/', null],
      ['Papers & <more>/large', theirs],
      ...texts.flatMap((text, n): [string, Buffer][] =>
        n === 0 || n === 2 ? [] : [[`Papers & <more>/${text}`, Buffer.from(n === 1 ? 'mine' : text)]],
      ),
      ['renamed/', null],
      ['renamed/empty', Buffer.alloc(0)],
      ['renamed/large', ours],
      ['renamed/text two', Buffer.from('text 2')],
      ['renamed/ünïcode & <x>', Buffer.from('third')],
    ];
    expect(server.tree().map(([path]) => path)).toEqual(expected.map(([path]) => path));
    for (const [n, [path, bytes]] of server.tree().entries()) {
      const isSame = bytes === null ? expected[n]?.[1] === null : expected[n]?.[1]?.equals(bytes);
      expect({ path, isSame }).toEqual({ path, isSame: true });
    }
    // Nothing came twice, and nothing went.
    expect(await names('')).toEqual([papers.name, 'renamed']);
    expect(await names('renamed')).toEqual(['empty', 'large', 'text two', 'ünïcode & <x>']);
    expect(await names(papers.name)).toEqual(['large', ...texts.filter((_text, n) => n !== 0 && n !== 2)]);
  },
);
