import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ListingQuery, ResourceId } from '../../../src/protocol/endpoints.ts';
import { type Account, type BackEnd, newAccount, type OpenBackEnd, outcome, outcomes } from './back-end.ts';

const ALL: ListingQuery = { type: null, start: null, max: null, order: null };
const TRASH = '9';
const PAGE_MAX = 20;

/** The demands of `RepositoryRules`, `CollectionRules` and `HistoryRules` on each implementation. */
export function repositorySuite(title: string, open: OpenBackEnd): void {
  describe(title, () => {
    let backEnd: BackEnd;
    let owner: Account;
    let friend: Account;
    beforeAll(async () => {
      backEnd = await open({ pageMax: PAGE_MAX });
      owner = await newAccount(backEnd);
      friend = await newAccount(backEnd);
    });
    afterAll(() => backEnd.close());

    const repository = () => backEnd.rules.repository;
    const newFolder = (name: string, parent = owner.at('2')): Promise<ResourceId> =>
      repository().createFolder(owner.uid, parent, name);
    const newFile = (parent: ResourceId, name: string, mediaType = 'text/plain'): Promise<ResourceId> =>
      repository().createFile(owner.uid, parent, name, mediaType);
    const namesIn = async (folder: ResourceId, query: Partial<ListingQuery> = {}): Promise<readonly string[]> =>
      (await repository().list(owner.uid, folder, { ...ALL, ...query })).entries.map(({ name }) => name);
    const share = (folder: ResourceId, writeAllowed: boolean): Promise<void> =>
      backEnd.administration.share(owner.email, folder.local, friend.email, { writeAllowed });

    test('a listing has folders first, and each kind in the order of creation, also after a rename', async () => {
      const parent = await newFolder('order');
      const first = await newFile(parent, 'c');
      await newFolder('b', parent);
      await newFile(parent, 'a');
      await newFolder('d', parent);
      await repository().updateFile(owner.uid, first, { name: 'z' });
      expect(await namesIn(parent)).toEqual(['b', 'd', 'z', 'a']);
      expect(await namesIn(parent, { type: 'file' })).toEqual(['z', 'a']);
      expect(await namesIn(parent, { type: 'folder' })).toEqual(['b', 'd']);
      expect(await namesIn(parent, { order: 'name' })).toEqual(['b', 'd', 'a', 'z']);
    });

    test('names keep every character, and sort by UTF-16 code units', async () => {
      const parent = await newFolder('characters');
      const names = ['Z', 'a', 'ä', 'a\u0308', '\u{1F600}', '\uFFFD', ' ', '', '/', '..', "'; --", '\\', '%_', '\t'];
      for (const name of names) await newFile(parent, name);
      expect(await namesIn(parent)).toEqual(names);
      expect(await namesIn(parent, { order: 'name' })).toEqual([...names].sort());
    });

    test('a name of 16,383 characters is kept, and a longer one refused', async () => {
      const parent = await newFolder('long');
      await newFile(parent, 'x'.repeat(16_383));
      expect(await outcome(newFile(parent, 'x'.repeat(16_384)))).toBe(400);
      expect((await namesIn(parent)).map(({ length }) => length)).toEqual([16_383]);
    });

    test('pages cover a folder without gaps and repetitions', async () => {
      const parent = await newFolder('pages');
      const names = Array.from({ length: 45 }, (_, at) => `file ${at}`);
      for (const name of names) await newFile(parent, name);
      const seen: string[] = [];
      for (let start = 0, hasMore = true; hasMore; start = seen.length) {
        const page = await repository().list(owner.uid, parent, { ...ALL, start, max: 1000 });
        expect(page.entries.length).toBeLessThanOrEqual(PAGE_MAX);
        seen.push(...page.entries.map(({ name }) => name));
        hasMore = page.hasMore;
      }
      expect(seen).toEqual(names);
      expect(await repository().list(owner.uid, parent, { ...ALL, start: 45 })).toMatchObject({ entries: [] });
      expect(await namesIn(parent, { start: 999_999_999_999_999 })).toEqual([]);
    });

    test('pages that are read during creations skip no entry', async () => {
      const parent = await newFolder('growing');
      const listed: (readonly string[])[] = [];
      const creating = Promise.all(
        Array.from({ length: 4 }, async (_, writer) => {
          for (let at = 0; at < 4; at += 1) await newFile(parent, `${writer}.${at}`);
        }),
      );
      let isDone = false;
      void creating.finally(() => {
        isDone = true;
      });
      while (!isDone) {
        listed.push(await namesIn(parent));
        await setImmediate();
      }
      await creating;
      const last = await namesIn(parent);
      expect(last).toHaveLength(16);
      for (const names of listed) expect(names).toEqual(last.slice(0, names.length));
    });

    test('moves of two folders into each other at the same time make no loop', async () => {
      for (let round = 0; round < 10; round += 1) {
        const [a, b] = [await newFolder(`a${round}`), await newFolder(`b${round}`)];
        const results = await outcomes([
          repository().updateFolder(owner.uid, a, { parent: b }),
          repository().updateFolder(owner.uid, b, { parent: a }),
        ]);
        expect(results).toEqual([403, 'done']);
      }
    });

    test('a folder moves neither into itself nor below itself', async () => {
      const outer = await newFolder('outer');
      const inner = await newFolder('inner', outer);
      for (const parent of [outer, inner])
        expect(await outcome(repository().updateFolder(owner.uid, outer, { parent }))).toBe(403);
    });

    test('system and sync folders do not move, and only a sync folder can be deleted', async () => {
      const name = 'sync';
      await repository().createSyncFolder(owner.uid, name);
      const top = await repository().listTop(owner.uid, ALL);
      const sync = top.entries.find((row) => row.name === name);
      if (sync === undefined) throw new Error('no sync folder');
      for (const folder of [sync, owner.at('2')])
        expect(await outcome(repository().updateFolder(owner.uid, folder, { name: 'other' }))).toBe(403);
      expect(await outcome(repository().deleteFolder(owner.uid, owner.at('2')))).toBe(403);
      expect(await outcome(repository().deleteFolder(owner.uid, sync))).toBe('done');
    });

    test('a deleted folder leaves its contents reachable by their ids', async () => {
      const parent = await newFolder('deleted');
      const file = await newFile(parent, 'left behind');
      await repository().deleteFolder(owner.uid, parent);
      expect(await outcome(repository().list(owner.uid, parent, ALL))).toBe(404);
      expect(await outcome(newFile(parent, 'x'))).toBe(404);
      expect(await repository().file(owner.uid, file)).toMatchObject({ name: 'left behind', parent: parent.local });
    });

    test('a deleted file is gone with its versions, and a second deletion is refused', async () => {
      const file = await newFile(owner.at('2'), 'f');
      const row = await repository().file(owner.uid, file);
      const { version } = await backEnd.rules.histories.create(owner.uid, file);
      const results = await outcomes([1, 2, 3].map(() => repository().deleteFile(owner.uid, file)));
      expect(results).toEqual([404, 404, 'done']);
      expect(await outcome(backEnd.rules.histories.version(row, version))).toBe(404);
      expect(await outcome(backEnd.rules.histories.create(owner.uid, file))).toBe(404);
    });

    test('a file is no folder, and a folder no file', async () => {
      const folder = await newFolder('kind');
      const file = await newFile(folder, 'f');
      expect(await outcome(repository().folder(owner.uid, file))).toBe(400);
      expect(await outcome(repository().file(owner.uid, folder))).toBe(400);
      expect(await outcome(newFile(file, 'x'))).toBe(400);
    });

    test('ids that were never issued, and those of another account, are refused', async () => {
      for (const local of ['77_77', '', 'x'.repeat(100_000), "1'--"]) {
        expect(await outcome(repository().folder(owner.uid, owner.at(local)))).toBe(404);
        expect(
          await outcome(repository().updateFolder(owner.uid, await newFolder('m'), { parent: owner.at(local) })),
        ).toBe(404);
      }
      const file = await newFile(owner.at('2'), 'mine');
      expect(await outcome(repository().file(friend.uid, file))).toBe(404);
      expect(await outcome(repository().updateFile(owner.uid, file, { parent: friend.at('2') }))).toBe(403);
    });

    test('a share gives its receiver what is below the folder, and nothing above', async () => {
      const above = await newFolder('above');
      const shared = await newFolder('shared', above);
      const below = await newFolder('below', shared);
      const file = await newFile(below, 'f');
      await share(shared, false);
      expect(await outcome(repository().folder(friend.uid, above))).toBe(404);
      expect(await repository().file(friend.uid, file)).toMatchObject({ name: 'f' });
      expect(await repository().shownFolder(friend.uid, shared)).toMatchObject({
        sharing: { writeAllowed: false },
        showsParent: false,
      });
      expect(await repository().shownFolder(friend.uid, below)).toMatchObject({ showsParent: true });
      expect(await repository().shownFolder(owner.uid, below)).toMatchObject({ sharing: null, showsParent: true });
      expect(await outcome(repository().updateFile(friend.uid, file, { name: 'g' }))).toBe(403);
      expect(await outcome(repository().createFile(friend.uid, below, 'x', 'text/plain'))).toBe(403);
      expect(await outcome(backEnd.rules.histories.create(friend.uid, file))).toBe(403);
    });

    test("a receiver with write permission creates in the owner's account, and deletes into the owner's trash", async () => {
      const shared = await newFolder('for writing');
      await share(shared, true);
      const made = await repository().createFile(friend.uid, shared, 'made', 'text/plain');
      expect(made.uid).toBe(owner.uid);
      await repository().updateFile(friend.uid, made, { parent: friend.at(TRASH) });
      expect(await repository().file(owner.uid, made)).toMatchObject({ parent: TRASH });
      expect(await outcome(repository().file(friend.uid, made))).toBe(404);
      for (const change of [{ name: 'renamed' }, { parent: friend.at('2') }])
        expect(await outcome(repository().updateFolder(friend.uid, shared, change))).toBe(403);
      expect(await outcome(repository().deleteFolder(friend.uid, shared))).toBe(403);
    });

    test('a file moves from no share into another share of the same receiver', async () => {
      const [one, two] = [await newFolder('share one'), await newFolder('share two')];
      await share(one, true);
      await share(two, true);
      const file = await newFile(one, 'f');
      expect(await outcome(repository().updateFile(friend.uid, file, { parent: two }))).toBe(403);
      expect(await outcome(repository().updateFile(owner.uid, file, { parent: two }))).toBe('done');
    });

    test('a share ends with its withdrawal and with its folder', async () => {
      const [one, two] = [await newFolder('withdrawn'), await newFolder('deleted')];
      await share(one, false);
      await share(two, false);
      const leftBehind = await newFile(two, 'left behind');
      const received = async () => {
        const shares = await backEnd.rules.collections.receivedShares(friend.uid);
        return shares.map(({ folder }) => folder.local).filter((local) => local === one.local || local === two.local);
      };
      expect((await received()).sort()).toEqual([one.local, two.local].sort());
      expect(await backEnd.rules.collections.contact(friend.uid, owner.uid)).toMatchObject({ email: owner.email });
      await backEnd.administration.unshare(owner.email, one.local, friend.email);
      await repository().deleteFolder(owner.uid, two);
      expect(await received()).toEqual([]);
      expect(await outcome(repository().file(friend.uid, leftBehind))).toBe(404);
      expect(await outcome(backEnd.rules.collections.receivedShare(friend.uid, one))).toBe(404);
    });

    test('a public link is the same until it is withdrawn, and reaches no file in the trash', async () => {
      const file = await newFile(owner.at('2'), 'linked');
      const { publicLink } = await repository().updateFile(owner.uid, file, { publicLink: true });
      const link = publicLink as string;
      expect(await repository().updateFile(owner.uid, file, { publicLink: true, name: 'again' })).toMatchObject({
        publicLink: link,
      });
      expect(await backEnd.rules.collections.linkedFile(link)).toMatchObject({ name: 'again' });
      expect((await backEnd.rules.collections.linkedFiles(owner.uid)).map(({ local }) => local)).toEqual([file.local]);
      await repository().updateFile(owner.uid, file, { parent: owner.at(TRASH) });
      expect(await backEnd.rules.collections.linkedFile(link)).toBeNull();
      await repository().updateFile(owner.uid, file, { parent: owner.at('2'), publicLink: false });
      expect(await backEnd.rules.collections.linkedFile(link)).toBeNull();
      expect(await backEnd.rules.collections.linkedFiles(owner.uid)).toEqual([]);
      const { publicLink: next } = await repository().updateFile(owner.uid, file, { publicLink: true });
      expect(next).not.toBe(link);
      await repository().deleteFile(owner.uid, file);
      expect(await backEnd.rules.collections.linkedFile(next as string)).toBeNull();
    });

    test('a folder with a picture is an album, unless it is in the trash', async () => {
      const folder = await newFolder('pictures');
      const albums = async () =>
        (await backEnd.rules.collections.albums(owner.uid)).filter(({ local }) => local === folder.local);
      expect(await outcome(backEnd.rules.collections.album(owner.uid, folder))).toBe(404);
      await newFile(folder, 'p', 'IMAGE/png');
      expect(await backEnd.rules.collections.album(owner.uid, folder)).toMatchObject({ local: folder.local });
      expect(await albums()).toHaveLength(1);
      await repository().updateFolder(owner.uid, folder, { parent: owner.at(TRASH) });
      expect(await albums()).toEqual([]);
    });

    test('a workspace belongs to its owner alone, and lists its sync folders', async () => {
      const { collections } = backEnd.rules;
      const local = await backEnd.administration.addWorkspace(owner.email, 'desk', { syncFolders: ['one', 'two'] });
      const id = owner.at(local);
      await collections.renameWorkspace(owner.uid, id, 'table');
      await collections.renameWorkspace(owner.uid, id, undefined);
      expect(await collections.workspace(owner.uid, id)).toMatchObject({ name: 'table' });
      expect((await collections.workspaceFolders(owner.uid, id)).map(({ name }) => name)).toEqual(['one', 'two']);
      expect(await outcome(collections.workspace(friend.uid, id))).toBe(404);
      expect(await outcome(collections.renameWorkspace(friend.uid, id, 'mine'))).toBe(404);
      expect(await collections.workspaces(friend.uid)).toEqual([]);
    });

    test('a history lists its versions from the newest to the oldest, in pages', async () => {
      const file = await newFile(owner.at('2'), 'history');
      const row = await repository().file(owner.uid, file);
      const made: string[] = [];
      for (let at = 0; at < 5; at += 1) made.unshift((await backEnd.rules.histories.create(owner.uid, file)).version);
      const pages = [0, 2, 4].map((start) => backEnd.rules.histories.list(row, start, 2));
      const seen = (await Promise.all(pages)).map(({ entries, hasMore }) => [
        hasMore,
        ...entries.map(({ version }) => version),
      ]);
      expect(seen).toEqual([
        [true, made[0], made[1]],
        [true, made[2], made[3]],
        [false, made[4]],
      ]);
      expect(await backEnd.rules.histories.version(row, made[4] as string)).toMatchObject({ complete: false });
      for (const version of ['', '1', '999999_1', `${made[0]}0`, "1_1'"])
        expect(await outcome(backEnd.rules.histories.version(row, version))).toBe(404);
    });

    test('simultaneous versions of one file have different names', async () => {
      const file = await newFile(owner.at('2'), 'busy');
      const made = await Promise.all(Array.from({ length: 20 }, () => backEnd.rules.histories.create(owner.uid, file)));
      expect(new Set(made.map(({ version }) => version)).size).toBe(20);
      expect(new Set(made.map(({ blob }) => blob)).size).toBe(20);
    });

    test('a copy of a file without data has no data, and the media type of its source', async () => {
      const source = await newFile(owner.at('2'), 'source', 'image/png');
      const copy = await repository().copyFile(owner.uid, owner.at('2'), source, 'copy');
      expect(await repository().file(owner.uid, copy)).toMatchObject({
        name: 'copy',
        mediaType: 'image/png',
        newest: null,
      });
      expect(await outcome(repository().copyFile(friend.uid, friend.at('2'), source, 'stolen'))).toBe(404);
    });
  });

  describe(`${title}, with unique names`, () => {
    test.each([false, true])('simultaneous creations of one name make one entry; folded case: %s', async (foldCase) => {
      const backEnd = await open({ uniqueNames: true, foldCase });
      const { uid, at } = await newAccount(backEnd);
      const { repository } = backEnd.rules;
      const make = (name: string) => repository.createFile(uid, at('2'), name, 'text/plain');

      const results = await outcomes([
        make('name'),
        make('name'),
        make('NAME'),
        repository.createFolder(uid, at('2'), 'name'),
      ]);
      expect(results).toEqual(foldCase ? [409, 409, 409, 'done'] : [409, 409, 'done', 'done']);
      const own = await make('own');
      expect(await outcome(repository.updateFile(uid, own, { name: 'OWN' }))).toBe('done');
      expect(await outcome(repository.updateFile(uid, own, { name: 'name' }))).toBe(409);
      await backEnd.close();
    });

    test('sync folders of a new computer obey the rule for names, and a refused computer leaves nothing', async () => {
      const backEnd = await open({ uniqueNames: true });
      const { uid, email } = await newAccount(backEnd);
      const add = (...syncFolders: string[]) => backEnd.administration.addWorkspace(email, 'Laptop', { syncFolders });
      const query = { type: null, start: null, max: null, order: null };

      expect(await outcome(add('Documents', 'Pictures'))).toBe('done');
      expect(await outcome(add('Films', 'Documents'))).toBe(409);

      const { entries } = await backEnd.rules.repository.listTop(uid, query);
      expect(entries.flatMap(({ role, name }) => (role === 'sync' ? [name] : []))).toEqual(['Documents', 'Pictures']);
      expect((await backEnd.rules.collections.workspaces(uid)).map((each) => each.name)).toEqual(['Laptop']);
      await backEnd.close();
    });
  });
}
