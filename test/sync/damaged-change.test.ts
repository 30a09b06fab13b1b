import { describe, expect, test } from 'vitest';
import type { ContentId, Inode } from '../../src/base/vocabulary.ts';
import type { Fate } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** The disk gives another row than was written about something that is to be pushed: its own trouble, and nobody else's. */

const TABLES = ['node', 'content', 'dirty', 'intent'] as const;
type Damage = () => void;

/** When the row is damaged; where `parks` is false the push may have been over by then. */
const WHEN: readonly (readonly [string, { parks: boolean }, (world: SyncWorld, damage: Damage) => Promise<void>])[] = [
  [
    'before the mount starts',
    { parks: true },
    async (world, damage) => {
      damage();
      world.restart();
    },
  ],
  ['while it settles', { parks: true }, async (_world, damage) => damage()],
  [
    'while it is pushed',
    { parks: false },
    async (world, damage) => {
      await begun(world);
      damage();
    },
  ],
  [
    'before a mount starts that does not know what came of the push',
    { parks: false },
    async (world, damage) => {
      await begun(world);
      damage();
      world.restart({ type: 'lose-reply' });
    },
  ],
  ['when the answer is lost', { parks: false }, (world, damage) => lineBreaks(world, damage, { type: 'lose-reply' })],
  ['when the line breaks', { parks: false }, (world, damage) => lineBreaks(world, damage, { type: 'lose-request' })],
];

const WHAT: readonly (readonly [string, string])[] = [
  ['a new file', '/f'],
  ['a new folder', '/a'],
  ['a changed file', '/known'],
  ['a folder in which something is changed', '/there'],
];

async function begun(world: SyncWorld): Promise<void> {
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
  expect(world.service.pending.length).toBeGreaterThan(0);
}

async function lineBreaks(world: SyncWorld, damage: Damage, fate: Fate): Promise<void> {
  await begun(world);
  damage();
  world.service.settleAll(fate);
  await world.quiet();
}

/** [S-damage-3] */
describe.each(TABLES)('of what table %s has', (table) => {
  describe.each(WHAT)('about %s', (_what, path) => {
    test.each(WHEN)(
      'a node whose row is damaged %s is parked, and everything else is pushed',
      async (_when, { parks }, happen) => {
        const world = new SyncWorld();
        world.write('/known', 'known');
        world.mkdir('/there');
        await world.settle();
        world.write('/f', 'f');
        world.mkdir('/a');
        world.write('/a/below', 'below');
        world.write('/known', 'changed');
        world.write('/there/inside', 'inside');
        world.write('/other', 'other');
        const { ino, local } = world.node(path);

        await happen(world, () => damageRow(world, table, ino, local?.content ?? null));
        await world.settle();

        const tree = world.service.tree();
        const wanted = {
          '/f': 'f',
          '/a/below': 'below',
          '/known': 'changed',
          '/there/inside': 'inside',
          '/other': 'other',
        };
        const { parked, pending } = world.sync.status();
        for (const [name, bytes] of Object.entries(wanted)) {
          const isConcerned = table !== 'dirty' && (name === path || name.startsWith(`${path}/`));
          if (!isConcerned) expect(tree.get(name), name).toBe(bytes);
        }
        if (table === 'intent' && path in wanted)
          expect([...tree.values()]).toContain(wanted[path as keyof typeof wanted]);
        expect(pending).toBe(parked.length);
        if (table === 'node' && parks) expect(parked).not.toEqual([]);
        for (const each of parked) {
          expect(each.reason).toBe('local-damage');
          expect(`/${each.path}`).toMatch(new RegExp(`^(/inode ${ino}(/|$)|${path}(/|$))`));
        }
        // What it had begun is begun anew, and refused: its name is taken, by itself.
        if (table !== 'intent') expect(world.service.violations).toEqual([]);
      },
    );
  });
});

function damageRow(world: SyncWorld, table: (typeof TABLES)[number], ino: Inode, content: ContentId | null): void {
  const intent = world.intents.ownedBy(ino);
  if (table === 'content') {
    if (content !== null) world.store.damage('content', content);
  } else if (table !== 'intent') world.store.damage(table, ino);
  else if (intent !== undefined) world.store.damage('intent', intent.id);
}

/** [S-damage-3] */
test('a wait for all pushes ends with an error for a damaged change', async () => {
  const world = new SyncWorld();
  world.write('/f', 'f');
  world.write('/other', 'other');
  const { ino } = world.node('/f');
  world.store.damage('node', ino);

  const waiting = world.sync.syncNow();
  await world.converge();

  const report = await waiting;
  expect(report).toMatchObject({ pushed: 1, parked: [{ ino, path: `inode ${ino}`, reason: 'local-damage' }] });
});

/** [S-damage-3] */
test('a sync request for a folder and a discard in another folder succeed beside a damaged change', async () => {
  const world = new SyncWorld();
  world.mkdir('/a');
  await world.settle();
  world.write('/a/f', 'f');
  world.write('/damaged', 'damaged');
  world.store.damage('node', world.node('/damaged').ino);
  const folder = world.node('/a').ino;

  expect(await world.sync.discard(folder, 'preview')).toMatchObject([{ path: 'a/f' }]);
  const waiting = world.sync.syncNow(undefined, folder);
  await world.converge();

  expect(await waiting).toMatchObject({ pushed: 1, parked: [{ reason: 'local-damage' }] });
});

test.each(['before', 'after'])(
  'no version is deleted permanently that an unreadable change may need (found %s a start)',
  async (when) => {
    const world = new SyncWorld({ deletion: 'forever' });
    world.write('/f', 'old');
    world.write('/g', 'g');
    world.write('/saved', 'the only copy');
    await world.settle();
    world.rename('/saved', '/f');
    world.remove('/g');
    const { ino } = world.node('/f');
    if (when === 'after') world.restart();
    world.store.damage('node', ino);
    if (when === 'before') world.restart();

    await world.settle();

    expect([...world.service.tree().values()]).toContain('the only copy');
  },
);

test('a sync request that was aborted before it began rejects, and starts no push earlier', async () => {
  const world = new SyncWorld();
  world.write('/f', 'f');

  await expect(world.sync.syncNow(AbortSignal.abort(new Error('given up')))).rejects.toThrow('given up');

  await world.quiet();
  expect(world.service.requests).toEqual([]);
  await world.settle();
  expect(world.service.tree().get('/f')).toBe('f');
});
