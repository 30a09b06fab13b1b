import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type Logger, silentLogger } from '../../src/base/log.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { DamagedRow } from '../../src/store/record-codec.ts';
import type { TableName, Tables } from '../../src/store/tables.ts';
import { Freshness } from '../../src/tree/freshness.ts';
import { MemoryStore } from './memory-store.ts';
import { file, folder, LookedAtService, makeTree, namesIn, ROOT_URL } from './tree-fixture.ts';

const TTL_MS = 30_000;
const never = new AbortController().signal;

/** One row of it is not what was written. */
class StoreWithDamage extends MemoryStore {
  damaged: readonly [TableName, Inode] | null = null;

  override get<T extends TableName>(table: T, key: Tables[T]['key']): Tables[T]['value'] | undefined {
    if (this.damaged?.[0] === table && this.damaged[1] === key) throw new DamagedRow(table, key);
    return super.get(table, key);
  }
}

/** [S-damage-2] */
test.each([
  ['the listing of a folder', 'folder', 'broken', DamagedRow],
  ['the record of a folder', 'node', 'broken', DamagedRow],
  ['the record of an open file', 'node', 'open', undefined],
] as const)('all other folders in use are refreshed although %s is damaged', async (_, table, name, thrown) => {
  const store = new StoreWithDamage();
  const { tree, fence, clock } = makeTree({ store });
  const service = new LookedAtService();
  const notLookedAt: Inode[] = [];
  const debug = (fields: { readonly ino?: Inode }): void => {
    if (fields.ino !== undefined) notLookedAt.push(fields.ino);
  };
  const freshness = new Freshness({
    ...{ tree, listing: service, fence, clock, log: { ...silentLogger, debug } as Logger },
    health: new ServiceHealth({ clock }),
    openFiles: () => [{ ino: ino('open') }, { ino: ino('open too') }],
    options: { dirTtlMs: TTL_MS, openWaitMs: 500, readTimeoutMs: 7_000 },
  });
  const inos = new Map<string, Inode>();
  const ino = (of: string): Inode => inos.get(of) ?? ROOT_INODE;
  const sound = folder('sound', 'sound');
  const ofOpenFile = folder('of open file', 'used by an open file');
  service.put(ROOT_URL, folder('broken', 'broken'), file('open', 'open'), sound, ofOpenFile);
  service.put(ofOpenFile.url, file('open too', 'open too'));
  for (const each of ['broken', 'sound']) service.put(folder(each, each).url, file(`in ${each}`, 'first'));
  await freshness.ensureListed(ROOT_INODE, never);
  for (const { name, node } of tree.children(ROOT_INODE)) inos.set(name, node.ino);
  for (const each of ['broken', ofOpenFile.name]) await freshness.ensureListed(ino(each), never);
  inos.set('open too', tree.child(ino(ofOpenFile.name), 'open too')?.ino ?? ROOT_INODE);

  store.damaged = [table, ino(name)];
  const look = () => freshness.ensureListed(ino('broken'), never);
  if (thrown === undefined) await look();
  else expect(look).toThrow(thrown);
  await freshness.ensureListed(ino('sound'), never);

  for (const tick of [1, 2, 3]) {
    // Something new at each: what shows nothing new is refreshed less often.
    for (const { url } of [sound, ofOpenFile]) service.put(url, file(`${tick} in ${url}`, `seen at tick ${tick}`));
    notLookedAt.length = 0;
    clock.advance(TTL_MS);
    for (let turn = 0; turn < 20; turn++) await nextTurn();
    expect(namesIn(tree, ino('sound'))).toContain(`seen at tick ${tick}`);
    expect(namesIn(tree, ino(ofOpenFile.name))).toContain(`seen at tick ${tick}`);
    expect(notLookedAt).toEqual([ino(name)]);
  }
  freshness.stop();
});
