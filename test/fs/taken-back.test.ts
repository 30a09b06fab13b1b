import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { rollbackRemovals } from '../../src/store/rollback-removals.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';
import { checkStore } from '../tree/tree-fixture.ts';

/** A service that is set back to a backup has lost versions that it had acknowledged. */

let synced: SyncedSide;
let file: ResourceUrl;
beforeEach(async () => {
  synced = await SyncedSide.build();
  const { service, side, mount } = synced;
  file = service.add('file', MODEL_ROOT, 'doc.txt', Buffer.from('old'));
  for (let n = 0; n < 20; n++) service.add('file', MODEL_ROOT, `f${n}`, Buffer.from('x'));
  await side.freshness.refresh();
  await mount.readFile('doc.txt');
});
afterEach(() => synced.close());

/** The newest version of the file goes. */
function takeBack(): void {
  const resource = synced.service.resources.get(file);
  if (resource === undefined) throw new Error('the file is not there');
  resource.versions = resource.versions.slice(1);
}

async function save(text: string): Promise<void> {
  await synced.pass(60_000);
  await synced.mount.writeFile('doc.txt', Buffer.from(text));
  await synced.converge();
  await synced.side.freshness.refresh();
}

test('an acknowledged version that the service has lost is kept and pushed as a conflicted copy', async () => {
  const { mount, service, side } = synced;
  await save('acknowledged');
  takeBack();
  await synced.pass(60_000);
  await side.freshness.refresh();
  await synced.converge();

  const names = (await mount.readdir('')).map(({ name }) => name).filter((name) => name.startsWith('doc'));
  expect(names).toHaveLength(2);
  const [copy = ''] = names.filter((name) => name.includes('conflicted copy'));
  expect((await mount.readFile('doc.txt')).toString()).toBe('old');
  expect((await mount.readFile(copy)).toString()).toBe('acknowledged');
  expect(service.tree().get(`/${copy}`)).toBe('acknowledged');
  checkStore(side.store, 'by others too');
});

test('removals that a listing reports together with a lost version wait for a person', async () => {
  const { mount, service, side } = synced;
  await save('acknowledged');
  takeBack();
  for (const { url, name } of service.childrenOf(MODEL_ROOT)) if (name === 'f3') service.resources.delete(url);
  for (let round = 0; round < 3; round++) {
    await synced.pass(60 * 60_000);
    await side.freshness.refresh();
  }
  expect((await mount.readdir('')).map(({ name }) => name)).toContain('f3');
  expect(side.freshness.heldRemovals).toHaveLength(1);

  await side.freshness.refresh(undefined, { accept: true });
  expect((await mount.readdir('')).map(({ name }) => name)).not.toContain('f3');
});

test('removals that wait since a lost version also wait after a restart', async () => {
  await save('acknowledged');
  takeBack();
  const { resources } = synced.service;
  for (const { url, name } of synced.service.childrenOf(MODEL_ROOT)) if (name === 'f3') resources.delete(url);
  await synced.pass(60 * 60_000);
  await synced.side.freshness.refresh();
  const left = synced;
  await left.close('keep');
  synced = await SyncedSide.build({ left });
  await synced.pass(60 * 60_000);
  await synced.side.freshness.refresh();

  expect((await synced.mount.readdir('')).map(({ name }) => name)).toContain('f3');
  expect(synced.side.freshness.heldRemovals).toHaveLength(1);
  await synced.side.freshness.refresh(undefined, { accept: true });
  expect((await synced.mount.readdir('')).map(({ name }) => name)).not.toContain('f3');
  expect(rollbackRemovals(synced.side.store)).toEqual([]);
});

test('an entry that the service has again can later be removed without a person', async () => {
  const { mount, service, side } = synced;
  await save('acknowledged');
  takeBack();
  const [lost] = service.childrenOf(MODEL_ROOT).filter(({ name }) => name === 'f3');
  if (lost === undefined) throw new Error('f3 is not there');
  service.resources.delete(lost.url);
  await side.freshness.refresh();
  service.resources.set(lost.url, lost);
  await side.freshness.refresh();
  expect(side.freshness.heldRemovals).toEqual([]);
  service.resources.delete(lost.url);
  await synced.pass(60 * 60_000);
  await side.freshness.refresh();

  expect((await mount.readdir('')).map(({ name }) => name)).not.toContain('f3');
});

test('a version that somebody saved later makes no copy', async () => {
  const { mount, service, side } = synced;
  await save('acknowledged');
  await synced.pass(60_000);
  service.addVersion(file, Buffer.from('theirs'));
  await side.freshness.refresh();

  expect((await mount.readdir('')).filter(({ name }) => name.startsWith('doc'))).toHaveLength(1);
  expect((await mount.readFile('doc.txt')).toString()).toBe('theirs');
});
