import { readFileSync } from 'node:fs';
import { beforeEach, describe, expect, test } from 'vitest';
import type { ContentId, Inode, IntentId, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import { INTENT_TABLE, type IntentEvent, type IntentKind, phaseAfter } from '../../src/store/intent-phase.ts';
import { type Intent, Intents, mayHaveActed, type NewIntent } from '../../src/store/intents.ts';
import { MemoryStore } from '../tree/memory-store.ts';
import { sampleContent } from './sample-records.ts';

const url = (name: string): ResourceUrl => `http://127.0.0.1/${name}` as ResourceUrl;
const FILE = url('file');
const VERSION = `${FILE}/version/1` as VersionUrl;
const CONTENT = 7 as ContentId;
const [ONE, TWO] = [2 as Inode, 3 as Inode];

let store: MemoryStore;
let intents: Intents;

beforeEach(() => {
  store = new MemoryStore();
  store.transact((tx) => tx.put('content', CONTENT, { ...sampleContent(), sizeBytes: 12, refs: 1 }));
  intents = new Intents(store);
});

function begin(started: Partial<NewIntent> = {}): IntentId {
  const upload = {
    owner: ONE,
    action: 'fill',
    parentResource: null,
    name: null,
    resource: FILE,
    content: CONTENT,
  } as const;
  return store.transact((tx) => intents.begin(tx, { ...upload, ...started }, 5));
}

function abandon(id: IntentId): void {
  store.transact((tx) => intents.abandon(tx, id));
}

const refs = (): number | undefined => store.get('content', CONTENT)?.refs;

describe('the state table', () => {
  test('is the one that docs/architecture.md draws', () => {
    const document = readFileSync(new URL('../../docs/architecture.md', import.meta.url), 'utf8');
    const drawn = new Map(
      [...document.matchAll(/^\| `(name|fill|version)` \| `(\w+)` \| (.*) \|$/gm)].map(([, kind, phase, row]) => [
        `${kind} ${phase}`,
        row,
      ]),
    );
    const built = new Map<string, string>();
    for (const [kind, phases] of Object.entries(INTENT_TABLE))
      for (const [phase, row] of Object.entries(phases))
        built.set(
          `${kind} ${phase}`,
          Object.entries(row)
            .map(([event, after]) => `${event} → \`${after}\``)
            .join(', '),
        );
    expect(drawn).toEqual(built);
  });

  const actions: Record<IntentKind, Intent['action']> = { name: 'relocate', fill: 'fill', version: 'new-version' };
  const events: IntentEvent[] = ['send', 'no-effect', 'lost', 'restart', 'arrived', 'acknowledge', 'abandon'];
  const rows = Object.entries(INTENT_TABLE).flatMap(([kind, phases]) =>
    Object.entries(phases).map(([phase, row]) => ({ kind: kind as IntentKind, phase: phase as Intent['phase'], row })),
  );
  test.each(rows)('$kind in phase $phase: an event that it lacks is an error', ({ kind, phase, row }) => {
    for (const event of events) {
      const after = row[event];
      const change = (): string => phaseAfter({ action: actions[kind], phase }, event);
      if (after === undefined) expect(change).toThrow('impossible');
      else expect(change()).toBe(after);
    }
  });

  test.each(rows)(
    '$kind in phase $phase survives each restart, and a second one changes nothing',
    ({ kind, phase }) => {
      const once = phaseAfter({ action: actions[kind], phase }, 'restart');
      expect(once).not.toBe('ended');
      expect(phaseAfter({ action: actions[kind], phase: once as Intent['phase'] }, 'restart')).toBe(once);
    },
  );

  test('phases that only the memory of a process has are read alike by the next start', () => {
    for (const [before, event] of [
      ['begun', 'send'],
      ['sent', 'no-effect'],
      ['interrupted', 'arrived'],
    ] as const) {
      const after = phaseAfter({ action: 'fill', phase: before }, event) as Intent['phase'];
      const read = (phase: Intent['phase']): string => phaseAfter({ action: 'fill', phase }, 'restart');
      expect(read(after)).toBe(read(before));
    }
  });
});

describe('an intent', () => {
  test('keeps its content until it ends', () => {
    const id = begin();
    expect(refs()).toBe(2);
    intents.forget(id);
    expect(refs()).toBe(1);
    expect([intents.get(id), intents.ownedBy(ONE)]).toEqual([undefined, undefined]);
  });

  test('is found by its new owner after a transfer, with its identity', () => {
    const id = begin();
    intents.note(id, 'send');
    store.transact((tx) => intents.transfer(tx, ONE, TWO));
    expect(intents.ownedBy(ONE)).toBeUndefined();
    expect(intents.ownedBy(TWO)).toMatchObject({ id, phase: 'sent' });
    expect(new Intents(store).ownedBy(TWO)).toMatchObject({ id, phase: 'interrupted' });
    expect(refs()).toBe(2);
  });

  test('replaces an earlier one of the same owner', () => {
    const name = { action: 'relocate', content: null, parentResource: url('folder'), name: 'n' } as const;
    const first = begin(name);
    const second = begin({ ...name, name: 'm' });
    expect(second).toBe(first);
    expect([...intents.open()]).toMatchObject([{ name: 'm' }]);
  });

  test('replaces no upload of the same owner, which may be in flight', () => {
    const id = begin();
    expect(() => begin({ action: 'relocate', content: null, parentResource: url('folder'), name: 'n' })).toThrow(
      'would replace',
    );
    expect([intents.get(id)?.content, refs()]).toEqual([CONTENT, 2]);
  });

  test('that a failed transaction wrote does not exist', () => {
    expect(() =>
      store.transact((tx) => {
        intents.begin(
          tx,
          { owner: ONE, action: 'trash', parentResource: null, name: null, resource: FILE, content: null },
          5,
        );
        throw new Error('the disk is full');
      }),
    ).toThrow('full');
    expect([intents.ownedBy(ONE), [...new Intents(store).open()]]).toEqual([undefined, []]);
  });

  test('that changes hands and ends in one transaction is ended', () => {
    const id = begin();
    store.transact((tx) => {
      intents.end(tx, id);
      intents.transfer(tx, ONE, TWO);
    });
    expect([intents.ownedBy(ONE), intents.ownedBy(TWO), refs()]).toEqual([undefined, undefined, 1]);
  });

  test('follows the folder to its new URL', () => {
    const id = begin({ action: 'create-folder', content: null, resource: null, parentResource: url('old'), name: 'n' });
    store.transact((tx) => intents.readdress(tx, url('old'), url('new')));
    expect(new Intents(store).get(id)?.parentResource).toBe(url('new'));
  });

  test('tells each listener what it was and what it is', () => {
    const seen: (readonly [Inode | undefined, Inode | undefined])[] = [];
    intents.onChange((before, after) => seen.push([before?.owner, after?.owner]));
    const id = begin();
    store.transact((tx) => intents.transfer(tx, ONE, TWO));
    intents.note(id, 'send');
    abandon(id);
    expect(seen).toEqual([
      [undefined, ONE],
      [ONE, TWO],
      [TWO, undefined],
    ]);
  });
});

describe('an abandoned upload', () => {
  test('of which nothing was sent leaves nothing', () => {
    const id = begin();
    expect(mayHaveActed(intents.get(id) as Intent)).toBe(false);
    abandon(id);
    expect([[...store.all('intent')], refs()]).toEqual([[], 1]);
  });

  test('is known by its length, also after a restart, and keeps no bytes', () => {
    const id = begin();
    intents.note(id, 'send');
    abandon(id);
    expect(refs()).toBe(1);
    for (const each of [intents, new Intents(store)]) {
      expect(each.ownedBy(ONE)).toBeUndefined();
      expect(each.abandonedOf(FILE)).toMatchObject([{ id, sizeBytes: 12, version: null, content: null }]);
      expect(each.abandonedOf(url('other'))).toEqual([]);
    }
  });

  test('by version is known by its URL, and by its length once the file has another URL', () => {
    const id = begin({ action: 'new-version' });
    store.transact((tx) => intents.happened(tx, id, 'send', { version: VERSION }));
    abandon(id);
    expect(intents.abandonedOf(FILE)).toMatchObject([{ version: VERSION, sizeBytes: 12 }]);
    store.transact((tx) => intents.readdress(tx, FILE, url('moved')));
    expect(intents.abandonedOf(url('moved'))).toMatchObject([{ version: null, sizeBytes: 12 }]);
  });

  test('stays known when the content is sent again, by a version of its own', () => {
    const id = begin();
    intents.note(id, 'send');
    store.transact((tx) => intents.fillByVersion(tx, id));
    expect(intents.ownedBy(ONE)).toMatchObject({ id, action: 'new-version', phase: 'begun', content: CONTENT });
    expect(intents.abandonedOf(FILE)).toMatchObject([{ action: 'fill', sizeBytes: 12 }]);
    expect(refs()).toBe(2);
  });

  test('is forgotten with its file', () => {
    const id = begin();
    intents.note(id, 'send');
    abandon(id);
    store.transact((tx) => intents.forgetAbandoned(tx, FILE));
    expect([...store.all('intent')]).toEqual([]);
  });

  test('is forgotten after a thousand later ones', () => {
    for (let n = 0; n < 1_002; n++) {
      const id = begin({ resource: url(`file ${n}`) });
      intents.note(id, 'send');
      abandon(id);
    }
    expect([...store.all('intent')]).toHaveLength(1_000);
    expect(intents.abandonedOf(url('file 1'))).toEqual([]);
    expect(intents.abandonedOf(url('file 2'))).toHaveLength(1);
  });
});
