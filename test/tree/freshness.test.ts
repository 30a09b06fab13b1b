import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ApiError, FsError, TransportError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { BACKGROUND_LISTINGS_MAX } from '../../src/tree/background-listings.ts';
import { Freshness } from '../../src/tree/freshness.ts';
import {
  checkStore,
  type Fixture,
  file,
  folder,
  LookedAtService,
  localFile,
  makeTree,
  namesIn,
  ROOT_URL,
  START_MS,
} from './tree-fixture.ts';

const offline = () => new TransportError('no route', { neverSent: true });
const never = new AbortController().signal;

describe('Freshness', () => {
  let fixture: Fixture;
  let service: LookedAtService;
  let health: ServiceHealth;
  let freshness: Freshness;
  let openFiles: { ino: Inode }[];

  beforeEach(() => {
    openFiles = [];
    fixture = makeTree();
    service = new LookedAtService();
    const { tree, fence, clock } = fixture;
    const options = { dirTtlMs: 30_000, openWaitMs: 500, readTimeoutMs: 7_000 };
    health = new ServiceHealth({ clock });
    freshness = new Freshness({
      tree,
      listing: service,
      fence,
      health,
      clock,
      log: silentLogger,
      openFiles: () => openFiles,
      options,
    });
  });
  afterEach(() => {
    freshness.stop();
    checkStore(fixture.store);
  });

  const listings = () => service.requests.filter((request) => request.startsWith('list'));
  const names = (ino = ROOT_INODE) => namesIn(fixture.tree, ino);
  const ino = (name: string) => fixture.tree.child(ROOT_INODE, name)?.ino as Inode;
  /** Until what goes on behind the scenes has gone on. */
  const quiet = async () => {
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  };

  it('waits for the first listing, once for all who ask, and for none after it', async () => {
    service.put(ROOT_URL, file('1', 'a'));
    const waits = [freshness.ensureListed(ROOT_INODE, never), freshness.ensureListed(ROOT_INODE, never)];
    expect(names()).toEqual([]);
    await Promise.all(waits);
    expect(names()).toEqual(['a']);
    expect(freshness.ensureListed(ROOT_INODE, never)).toBeUndefined();
    expect(listings()).toHaveLength(1);
  });

  it('lets one who is interrupted go, not the listing', async () => {
    service.put(ROOT_URL, file('1', 'a'));
    const impatient = new AbortController();
    const first = freshness.ensureListed(ROOT_INODE, impatient.signal);
    const second = freshness.ensureListed(ROOT_INODE, never);
    impatient.abort(new DOMException('interrupted', 'AbortError'));
    await expect(first).rejects.toThrow('interrupted');
    await second;
    expect(names()).toEqual(['a']);
    expect(listings()).toHaveLength(1);
  });

  it('the wait for a first listing ends after the read timeout, and the listing continues', async () => {
    service.put(ROOT_URL, file('1', 'a'));
    let answer = () => {};
    service.before = () => new Promise((resolve) => (answer = resolve));
    const first = Promise.resolve(freshness.ensureListed(ROOT_INODE, never)).then(
      () => 'listed',
      (error: FsError) => error.errno,
    );
    fixture.clock.advance(6_999);
    const second = freshness.ensureListed(ROOT_INODE, never);
    await quiet();
    fixture.clock.advance(1);
    expect(await first).toBe('ETIMEDOUT');

    answer();
    await second;
    expect(names()).toEqual(['a']);
    expect(listings()).toHaveLength(1);
  });

  it('asks nothing about a folder that exists only here', () => {
    const here = localFile(fixture.tree, ROOT_INODE, 'here', 'folder').ino;
    expect(freshness.ensureListed(here, never)).toBeUndefined();
    fixture.clock.advance(60_000);
    expect(freshness.ensureListed(here, never)).toBeUndefined();
    expect(service.requests).toEqual([]);
  });

  it('at most four stale folders are refreshed at once, the most recently used first, and none after a stop', async () => {
    const all = Array.from({ length: 12 }, (_, n) => `f${n}`);
    for (const name of all) service.put(ROOT_URL, folder(name, name));
    await freshness.ensureListed(ROOT_INODE, never);
    for (const name of all) await freshness.ensureListed(ino(name), never);
    await quiet();
    const inos = all.map(ino);
    fixture.clock.advance(29_999);
    await quiet();
    service.requests.length = 0;
    const answers: (() => void)[] = [];
    service.before = () => new Promise((resolve) => answers.push(resolve));
    // A listing that a caller waits for takes no place of the background.
    const refreshed = freshness.refresh(inos.at(-1) as Inode).catch(() => {});
    await quiet();
    fixture.clock.advance(1);
    for (const each of inos) expect(freshness.isListed(each)).toBe(true);
    await quiet();
    expect(new Set(listings()).size).toBe(1 + BACKGROUND_LISTINGS_MAX);

    answers[1]?.();
    await quiet();
    expect(listings()).toHaveLength(2 + BACKGROUND_LISTINGS_MAX);
    expect(listings().at(-1)).toBe(`list ${folder('f10', 'f10').url} 0`);
    freshness.stop();
    for (const answer of answers) answer();
    await refreshed;
    await quiet();
    expect(listings()).toHaveLength(2 + BACKGROUND_LISTINGS_MAX);
  });

  it('a stale listing is returned immediately and refreshed in the background', async () => {
    service.put(ROOT_URL, file('1', 'a'));
    await freshness.ensureListed(ROOT_INODE, never);
    service.put(ROOT_URL, file('2', 'b'));
    fixture.clock.advance(29_999);
    expect(freshness.ensureListed(ROOT_INODE, never)).toBeUndefined();
    await quiet();
    expect(names()).toEqual(['a']);
    fixture.forgotten.length = 0;
    fixture.clock.advance(1);
    expect(freshness.ensureListed(ROOT_INODE, never)).toBeUndefined();
    await quiet();
    expect(names()).toEqual(['a', 'b']);
    expect(fixture.forgotten).toContainEqual({ kind: 'entry', parent: ROOT_INODE, name: 'b' });
    expect(listings()).toHaveLength(2);
  });

  it('lists a folder in use by itself, more slowly while nothing changes, and none that nobody looks at', async () => {
    service.put(ROOT_URL, folder('d', 'd'), folder('e', 'e'));
    await freshness.ensureListed(ROOT_INODE, never);
    await freshness.ensureListed(ino('d'), never);
    await freshness.ensureListed(ino('e'), never);
    const before = service.requests.length;
    for (let second = 0; second < 120; second++) {
      fixture.clock.advance(1000);
      // Somebody works in d.
      await freshness.ensureListed(ino('d'), never);
      await quiet();
    }
    const of = (name: string) =>
      service.requests.slice(before).filter((request) => request.includes(`folder/${name} `)).length;
    expect(of('d')).toBeGreaterThanOrEqual(3);
    expect(of('d')).toBeLessThanOrEqual(4);
    expect(of('e')).toBeLessThanOrEqual(3);
    fixture.clock.advance(600_000);
    await quiet();
    const later = service.requests.length;
    for (let minute = 0; minute < 20; minute++) {
      fixture.clock.advance(60_000);
      await quiet();
    }
    expect(service.requests.length).toBe(later);
  });

  it('sees what another client appends to a file that somebody follows, however long', async () => {
    service.put(ROOT_URL, file('1', 'log', 10));
    await freshness.ensureListed(ROOT_INODE, never);
    openFiles = [{ ino: ino('log') }];
    for (let minute = 1; minute <= 30; minute++) {
      service.drop(file('1', 'log').url);
      service.put(ROOT_URL, file('1', 'log', 10 + minute));
      for (let second = 0; second < 60; second += 30) {
        fixture.clock.advance(30_000);
        await quiet();
      }
      expect(fixture.tree.node(ino('log'))?.local?.sizeBytes).toBe(10 + minute);
    }
  });

  it('takes pages in order, and asks for an entry that slipped between them', async () => {
    service.pageEntries = 2;
    const entries = ['a', 'b', 'c', 'd', 'e'].map((name) => file(name, name));
    service.put(ROOT_URL, ...entries);
    await freshness.ensureListed(ROOT_INODE, never);
    expect(listings()).toEqual([0, 2, 4].map((start) => `list ${ROOT_URL} ${start}`));
    // After the first page somebody deletes a: c moves to the first page, which was read already.
    service.requests.length = 0;
    service.before = (request) => {
      if (request.endsWith(' 2')) service.drop(file('a', 'a').url);
    };
    await freshness.refresh(ROOT_INODE);
    expect(service.requests).toContain(`resource ${file('c', 'c').url}`);
    expect(names()).toEqual(['a', 'b', 'c', 'd', 'e']);
    service.before = () => {};
    await freshness.refresh(ROOT_INODE);
    expect(names()).toEqual(['b', 'c', 'd', 'e']);
  });

  it('removes what its URL says is gone, and follows what moved', async () => {
    service.put(ROOT_URL, folder('d', 'd'), file('1', 'gone'), file('2', 'moved'));
    await freshness.ensureListed(ROOT_INODE, never);
    await freshness.ensureListed(ino('d'), never);
    const [gone, moved] = [ino('gone'), ino('moved')];
    service.drop(file('1', 'gone').url);
    service.drop(file('2', 'moved').url);
    service.put(folder('d', 'd').url, file('2', 'moved'));
    fixture.forgotten.length = 0;
    await freshness.refresh(ROOT_INODE);
    expect(names()).toEqual(['d/']);
    expect(names(ino('d'))).toEqual(['moved']);
    expect(fixture.tree.child(ino('d'), 'moved')?.ino).toBe(moved);
    expect(fixture.forgotten).toContainEqual({
      ...{ kind: 'deleted', parent: ROOT_INODE, ino: gone, name: 'gone', isFolder: false },
    });
    expect(fixture.forgotten).toContainEqual({ kind: 'entry', parent: ROOT_INODE, name: 'moved', ino: moved });
    expect(fixture.forgotten).toContainEqual({ kind: 'entry', parent: ino('d'), name: 'moved' });
  });

  it('follows what was moved into folders that it has not seen', async () => {
    service.put(ROOT_URL, folder('d', 'd'), file('1', 'a'));
    await freshness.ensureListed(ROOT_INODE, never);
    await freshness.ensureListed(ino('d'), never);
    const a = ino('a');
    fixture.tree.change(a, { mode: 0o600 });
    service.drop(file('1', 'a').url);
    service.put(folder('d', 'd').url, folder('e', 'e'));
    service.put(folder('e', 'e').url, folder('f', 'f'));
    service.put(folder('f', 'f').url, file('1', 'renamed'));
    await freshness.refresh(ROOT_INODE);
    expect(names()).toEqual(['d/']);
    const e = fixture.tree.child(ino('d'), 'e')?.ino as Inode;
    const f = fixture.tree.child(e, 'f')?.ino as Inode;
    expect(fixture.tree.child(f, 'renamed')).toMatchObject({ ino: a, local: { mode: 0o600 } });
    expect(fixture.tree.isComplete(e)).toBe(false);
  });

  it('asks once where the trash is, however much lies in it', async () => {
    const trash = folder('trash', 'Deleted Files');
    service.folders.set(trash.url, []);
    service.put(ROOT_URL, ...['1', '2', '3', '4', '5', '6'].map((id) => file(id, id)));
    await freshness.ensureListed(ROOT_INODE, never);
    for (const id of ['1', '2', '3', '4', '5']) {
      service.drop(file(id, id).url);
      service.put(trash.url, file(id, id));
    }
    service.requests.length = 0;
    await freshness.refresh(ROOT_INODE);
    expect(names()).toEqual(['6']);
    expect(service.requests.filter((request) => request === `resource ${trash.url}`).length).toBeLessThanOrEqual(4);
  });

  it('gives the name of a deleted file to the one that was made in its place', async () => {
    service.put(ROOT_URL, file('old', 'a'));
    await freshness.ensureListed(ROOT_INODE, never);
    service.drop(file('old', 'a').url);
    service.put(ROOT_URL, file('new', 'a'));
    await freshness.refresh(ROOT_INODE);
    expect(names()).toEqual(['a']);
    expect(fixture.tree.child(ROOT_INODE, 'a')?.remote?.resource).toBe(file('new', 'a').url);
  });

  it('does not believe that a hundred and one entries are gone until it is told to', async () => {
    service.put(ROOT_URL, ...Array.from({ length: 150 }, (_, i) => file(`f${i}`, `f${i}`)));
    await freshness.ensureListed(ROOT_INODE, never);
    for (let i = 0; i < 101; i++) service.drop(file(`f${i}`, '').url);
    service.requests.length = 0;
    await freshness.refresh(ROOT_INODE);
    expect(names()).toHaveLength(150);
    expect(freshness.heldRemovals).toEqual([{ at: ROOT_INODE, nodes: 101 }]);
    expect(service.requests).toHaveLength(1);
    await freshness.refresh(undefined, { accept: true });
    expect(names()).toHaveLength(49);
    expect(freshness.heldRemovals).toEqual([]);
  });

  it('removes a folder whose listing says that it is gone', async () => {
    service.put(ROOT_URL, folder('d', 'd'));
    await freshness.ensureListed(ROOT_INODE, never);
    const d = ino('d');
    service.drop(folder('d', 'd').url);
    service.folders.delete(folder('d', 'd').url);
    const gone = freshness.ensureListed(d, never);
    await expect(gone).rejects.toMatchObject({ errno: 'ENOENT' });
    await expect(gone).rejects.toBeInstanceOf(FsError);
    expect(names()).toEqual([]);
  });

  it('keeps a folder with more than a hundred entries that is gone, until it is told to let it go', async () => {
    const d = folder('d', 'd');
    service.put(ROOT_URL, d);
    service.put(d.url, ...Array.from({ length: 150 }, (_, i) => file(`f${i}`, `f${i}`)));
    await freshness.ensureListed(ROOT_INODE, never);
    await freshness.ensureListed(ino('d'), never);
    service.drop(d.url);
    service.folders.delete(d.url);
    await freshness.refresh(ino('d'));
    await freshness.refresh(ROOT_INODE);
    expect(names()).toEqual(['d/']);
    expect(names(ino('d'))).toHaveLength(150);
    expect(freshness.heldRemovals).toEqual([{ at: ino('d'), nodes: 101 }]);
    await freshness.refresh(undefined, { accept: true });
    expect(names()).toEqual([]);
    expect(freshness.heldRemovals).toEqual([]);
  });

  it('asks once in a TTL about a folder that is gone and kept, however busy it is; at once when told to', async () => {
    const d = folder('d', 'd');
    service.put(ROOT_URL, d);
    service.put(d.url, ...Array.from({ length: 150 }, (_, i) => file(`f${i}`, `f${i}`)));
    await freshness.ensureListed(ROOT_INODE, never);
    const folderIno = ino('d');
    await freshness.ensureListed(folderIno, never);
    const opened = fixture.tree.child(folderIno, 'f0')?.ino as Inode;
    service.drop(d.url);
    service.folders.delete(d.url);
    fixture.clock.advance(30_000);
    await quiet();

    for (let ttl = 1; ttl <= 2; ttl++) {
      service.requests.length = 0;
      for (let look = 0; look < 1000; look++) {
        expect(freshness.ensureListed(folderIno, never)).toBeUndefined();
        // Whoever opens a file waits only for the one listing.
        await freshness.beforeOpen(opened, { signal: never });
        fixture.clock.advance(30);
        await quiet();
      }
      expect(listings().filter((request) => request.includes(d.url))).toHaveLength(1);
      // Its own question, and that of the listing above, which lacks it.
      expect(service.requests.filter((request) => request === `resource ${d.url}`).length).toBeLessThanOrEqual(2);
    }
    expect(names(folderIno)).toHaveLength(150);
    expect(freshness.heldRemovals).toEqual([{ at: folderIno, nodes: 101 }]);

    service.requests.length = 0;
    await freshness.refresh(folderIno);
    expect(service.requests).toEqual([`list ${d.url} 0`, `resource ${d.url}`, `list ${ROOT_URL} 0`]);
    await freshness.refresh(undefined, { accept: true });
    expect(names()).toEqual([]);
  });

  it('sees a folder that the service has again after it was gone and kept', async () => {
    const d = folder('d', 'd');
    service.put(ROOT_URL, d);
    const entries = Array.from({ length: 150 }, (_, i) => file(`f${i}`, `f${i}`));
    service.put(d.url, ...entries);
    await freshness.ensureListed(ROOT_INODE, never);
    await freshness.ensureListed(ino('d'), never);
    service.drop(d.url);
    service.folders.delete(d.url);
    await freshness.refresh(ino('d'));
    expect(freshness.heldRemovals).toHaveLength(1);

    service.put(ROOT_URL, d);
    service.put(d.url, ...entries, file('new', 'new'));
    fixture.clock.advance(30_000);
    freshness.isListed(ino('d'));
    await quiet();

    expect(names(ino('d'))).toContain('new');
    expect(freshness.heldRemovals).toEqual([]);
  });

  describe.each([0, 1, 50])('with a TTL of %i ms', (dirTtlMs) => {
    let ticks: number;
    beforeEach(() => {
      freshness.stop();
      ticks = 0;
      const counted = () => {
        ticks += 1;
        return [];
      };
      const { tree, fence, clock } = fixture;
      const options = { dirTtlMs, openWaitMs: 500, readTimeoutMs: 7_000 };
      const log = silentLogger;
      freshness = new Freshness({ tree, listing: service, fence, health, clock, log, openFiles: counted, options });
    });

    it('folders in use are refreshed at most once a second, also after an error', async () => {
      service.put(ROOT_URL, ...['d', 'e', 'f'].map((name) => folder(name, name)));
      await freshness.ensureListed(ROOT_INODE, never);
      for (const each of ['d', 'e', 'f']) await freshness.ensureListed(ino(each), never);
      service.before = (request) => {
        if (request.includes('folder/e')) throw new ApiError(403, 'GET', 'no');
        // Something new each time: what shows nothing new is refreshed less often.
        if (request.includes('folder/d'))
          service.put(folder('d', 'd').url, file(`${service.requests.length}`, request));
      };
      service.requests.length = 0;
      for (let step = 0; step < 1000; step++) {
        fixture.clock.advance(10);
        await quiet();
      }
      const of = (name: string) => listings().filter((request) => request.includes(`folder/${name} `)).length;
      expect(ticks).toBe(10);
      expect(of('d')).toBeGreaterThanOrEqual(8);
      expect(of('d')).toBeLessThanOrEqual(10);
      expect(of('e')).toBeGreaterThanOrEqual(8);
      expect(of('e')).toBeLessThanOrEqual(10);
      expect(of('f')).toBeGreaterThanOrEqual(2);
      expect(of('f')).toBeLessThanOrEqual(4);
    });

    it('pauses for a second after an error, however often somebody looks', async () => {
      await freshness.ensureListed(ROOT_INODE, never);
      service.failure = new ApiError(403, 'GET', 'no');
      service.requests.length = 0;
      for (let look = 0; look < 990; look++) {
        fixture.clock.advance(1);
        freshness.isListed(ROOT_INODE);
        await quiet();
      }
      expect(listings()).toHaveLength(1);
      service.failure = null;
      fixture.clock.advance(100);
      freshness.isListed(ROOT_INODE);
      await quiet();
      expect(listings()).toHaveLength(2);
    });

    it('what a program looks at itself is as fresh as it says', async () => {
      await freshness.ensureListed(ROOT_INODE, never);
      service.requests.length = 0;
      for (let look = 1; look <= 5; look++) {
        fixture.clock.advance(Math.max(dirTtlMs, 1));
        service.put(ROOT_URL, file(`${look}`, `${look}`));
        freshness.isListed(ROOT_INODE);
        await quiet();
        expect(names()).toHaveLength(look);
      }
      expect(listings()).toHaveLength(5);
    });
  });

  describe('without an answer', () => {
    it('serves what is known, and says at once that it cannot know the rest', async () => {
      service.put(ROOT_URL, folder('d', 'd'));
      await freshness.ensureListed(ROOT_INODE, never);
      service.failure = offline();
      await expect(freshness.ensureListed(ino('d'), never)).rejects.toBeInstanceOf(TransportError);
      expect(health.pausing).toBeInstanceOf(TransportError);
      const requests = service.requests.length;
      await expect(freshness.ensureListed(ino('d'), never)).rejects.toBeInstanceOf(TransportError);
      fixture.clock.advance(500);
      expect(freshness.ensureListed(ROOT_INODE, never)).toBeUndefined();
      expect(service.requests.length).toBe(requests);
      expect(names()).toEqual(['d/']);
    });

    it('tries again after growing pauses, and is back with the first answer', async () => {
      service.put(ROOT_URL, folder('d', 'd'));
      await freshness.ensureListed(ROOT_INODE, never);
      service.failure = offline();
      const d = ino('d');
      const before = service.requests.length;
      for (let second = 0; second < 120; second++) {
        await Promise.resolve(freshness.ensureListed(d, never)).catch(() => {});
        fixture.clock.advance(1000);
      }
      expect(service.requests.length - before).toBeLessThanOrEqual(10);
      service.failure = null;
      fixture.clock.advance(40_000);
      await freshness.ensureListed(d, never);
      expect(health.failure).toBeNull();
    });

    it('a listing that fails on a later page changes nothing', async () => {
      service.pageEntries = 1;
      service.put(ROOT_URL, file('1', 'a'), file('2', 'b'));
      await freshness.ensureListed(ROOT_INODE, never);
      service.put(ROOT_URL, file('3', 'c'));
      service.before = (request) => {
        service.failure = request.endsWith(' 2') ? offline() : null;
      };
      await expect(freshness.refresh(ROOT_INODE)).rejects.toBeInstanceOf(TransportError);
      expect(names()).toEqual(['a', 'b']);
    });

    it('a refusal concerns its folder only', async () => {
      service.put(ROOT_URL, folder('d', 'd'));
      await freshness.ensureListed(ROOT_INODE, never);
      service.before = (request) => {
        service.failure = request.includes('folder/d') ? new ApiError(403, 'GET /folder/d/contents', 'no') : null;
      };
      await expect(freshness.ensureListed(ino('d'), never)).rejects.toMatchObject({ status: 403 });
      expect(health.failure).toBeNull();
      await freshness.refresh(ROOT_INODE);
    });

    it('an unanswered question removes nothing', async () => {
      service.put(ROOT_URL, file('1', 'a'));
      await freshness.ensureListed(ROOT_INODE, never);
      service.drop(file('1', 'a').url);
      service.before = (request) => {
        service.failure = request.startsWith('resource') ? offline() : null;
      };
      await freshness.refresh(ROOT_INODE);
      expect(names()).toEqual(['a']);
      expect(health.failure).not.toBeNull();
    });
  });

  describe('before an open', () => {
    beforeEach(async () => {
      service.put(ROOT_URL, file('1', 'a'));
      await freshness.ensureListed(ROOT_INODE, never);
    });

    it('asks nothing while the listing is young', () => {
      expect(freshness.beforeOpen(ino('a'), { signal: never })).toBeUndefined();
      expect(freshness.beforeOpen(localFile(fixture.tree, ROOT_INODE, 'new').ino, { signal: never })).toBeUndefined();
    });

    it('learns of a newer version', async () => {
      fixture.clock.advance(30_000);
      service.drop(file('1', 'a').url);
      service.put(ROOT_URL, file('1', 'a', 55, START_MS + 30_000));
      await freshness.beforeOpen(ino('a'), { signal: never });
      expect(fixture.tree.child(ROOT_INODE, 'a')?.local?.sizeBytes).toBe(55);
    });

    it('waits no longer than it may', async () => {
      let answer = () => {};
      service.before = () =>
        new Promise<void>((resolve) => {
          answer = resolve;
        });
      fixture.clock.advance(30_000);
      const done = vi.fn();
      const waiting = Promise.resolve(freshness.beforeOpen(ino('a'), { signal: never })).then(done);
      await quiet();
      fixture.clock.advance(499);
      await quiet();
      expect(done).not.toHaveBeenCalled();
      fixture.clock.advance(1);
      await waiting;
      answer();
      await quiet();
    });

    it('waits once for a service that hangs, however many open', async () => {
      service.put(ROOT_URL, folder('d', 'd'));
      service.put(folder('d', 'd').url, file('2', 'b'));
      await freshness.refresh(ROOT_INODE);
      await freshness.ensureListed(ino('d'), never);
      const b = fixture.tree.child(ino('d'), 'b')?.ino as Inode;
      fixture.clock.advance(30_000);
      await quiet();
      fixture.clock.advance(30_000);
      let answer = () => {};
      const hanging = new Promise<void>((resolve) => {
        answer = resolve;
      });
      service.before = () => hanging;
      const first = freshness.beforeOpen(ino('a'), { signal: never });
      fixture.clock.advance(300);
      const late = freshness.beforeOpen(ino('a'), { signal: never });
      fixture.clock.advance(200);
      // The second joined the same listing: it is waited for 500 ms in all, not by each.
      await Promise.all([first, late]);
      for (let open = 0; open < 300; open++) expect(freshness.beforeOpen(ino('a'), { signal: never })).toBeUndefined();
      expect(freshness.beforeOpen(b, { signal: never })).toBeUndefined();
      answer();
      service.before = () => {};
      await quiet();
      fixture.clock.advance(30_000);
      expect(freshness.beforeOpen(b, { signal: never })).toBeInstanceOf(Promise);
    });

    it('does not wait again for a listing that hangs, whoever else is answered', async () => {
      fixture.clock.advance(30_000);
      service.before = () => new Promise<void>(() => {});
      const waiting = freshness.beforeOpen(ino('a'), { signal: never });
      fixture.clock.advance(500);
      await waiting;
      health.reachable();
      expect(freshness.beforeOpen(ino('a'), { signal: never })).toBeUndefined();
    });

    it('says at once that it cannot know a folder whose first listing hangs, when the service is found to be away', async () => {
      service.put(ROOT_URL, folder('d', 'd'));
      await freshness.refresh(ROOT_INODE);
      service.before = () => new Promise<void>(() => {});
      const hanging = Promise.resolve(freshness.ensureListed(ino('d'), never));
      hanging.catch(() => {});
      fixture.clock.advance(10_000);
      health.unanswered(offline());
      await expect(freshness.ensureListed(ino('d'), never)).rejects.toBeInstanceOf(TransportError);
      expect(health.pausing).toBeInstanceOf(TransportError);
    });

    it('does not wait when the service is away', async () => {
      fixture.clock.advance(40_000);
      service.failure = offline();
      await freshness.beforeOpen(ino('a'), { signal: never });
      expect(freshness.beforeOpen(ino('a'), { signal: never })).toBeUndefined();
    });

    it('ends with the caller', async () => {
      fixture.clock.advance(30_000);
      service.before = () => new Promise<void>(() => {});
      const interrupted = new AbortController();
      const waiting = freshness.beforeOpen(ino('a'), interrupted);
      interrupted.abort(new DOMException('interrupted', 'AbortError'));
      await expect(waiting).rejects.toThrow('interrupted');
    });
  });

  it('lists ahead of somebody who walks through folders, never more than a few at once, and each once', async () => {
    const folders = Array.from({ length: 40 }, (_, i) => folder(`d${i}`, `d${String(i).padStart(2, '0')}`));
    service.put(ROOT_URL, ...folders);
    for (const { url } of folders) service.put(url, file(`f of ${url}`, 'f'));
    let now = 0;
    let most = 0;
    let rounds = 0;
    service.before = async () => {
      now += 1;
      most = Math.max(most, now);
      if (now === 1) rounds += 1;
      await quiet();
      now -= 1;
    };
    await freshness.ensureListed(ROOT_INODE, never);
    for (const name of names()) await freshness.ensureListed(ino(name.slice(0, -1)), never);
    expect(listings()).toHaveLength(41);
    expect(new Set(listings()).size).toBe(41);
    expect(most).toBeLessThanOrEqual(7);
    expect(most).toBeGreaterThanOrEqual(6);
    // Six at a time take eight rounds; the beginning is slower.
    expect(rounds).toBeLessThan(16);
    for (const name of names()) expect(names(ino(name.slice(0, -1)))).toEqual(['f']);
  });

  it('lists nothing ahead of somebody who looks at one folder', async () => {
    service.put(ROOT_URL, folder('d', 'd'), folder('e', 'e'));
    await freshness.ensureListed(ROOT_INODE, never);
    await freshness.ensureListed(ino('d'), never);
    await quiet();
    expect(listings()).toHaveLength(2);
  });

  it('refreshes on demand what is in use, and everything else when it is next looked at', async () => {
    service.put(ROOT_URL, folder('d', 'd'));
    await freshness.ensureListed(ROOT_INODE, never);
    await freshness.ensureListed(ino('d'), never);
    fixture.clock.advance(5);
    service.requests.length = 0;
    await freshness.refresh();
    expect(listings()).toHaveLength(2);
  });

  it('stops: who waits is told, nothing is asked any more', async () => {
    service.put(ROOT_URL, file('1', 'a'));
    service.before = () => new Promise<void>((resolve) => setImmediate(resolve));
    const waiting = freshness.ensureListed(ROOT_INODE, never);
    freshness.stop();
    await expect(waiting).rejects.toBeInstanceOf(FsError);
    fixture.clock.advance(100_000);
    await quiet();
    expect(service.requests).toHaveLength(1);
  });
});
