import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from './model-service.ts';

/** Two have one name for a moment, because what one of them is called by now is not known yet. A number is for that moment only. */

let synced: SyncedSide;
beforeEach(async () => {
  synced = await SyncedSide.build();
});
afterEach(() => synced.close());

const never = new AbortController().signal;

const here = async (): Promise<string[]> => (await synced.mount.readdir('')).map(({ name }) => name).toSorted();
const there = (): string[] => [...synced.service.tree().keys()].map((path) => path.slice(1)).toSorted();

async function listed(times = 3): Promise<void> {
  for (let round = 0; round < times; round++) {
    await synced.pass(60_000);
    await synced.side.freshness.refresh();
  }
}

describe('a file that is read here, and that somebody replaced by another of its name', () => {
  let reader: number;
  beforeEach(async () => {
    const { mount, service, side } = synced;
    const old = service.add('file', MODEL_ROOT, 'report.doc', Buffer.from('old'));
    await side.freshness.refresh();
    await mount.readFile('report.doc');
    reader = await mount.open('report.doc', 'r');
    await mount.read(reader, 0, 1);
    await service.moveToTrash(old, 'file', 'report.doc', never);
    service.add('file', MODEL_ROOT, 'report.doc', Buffer.from('new'));
    await side.freshness.refresh();
  });

  test('a replaced file that is open here gives up its name when it is closed', async () => {
    const { mount } = synced;
    await listed();
    // Nothing is hidden meanwhile, and it does not get another name with each listing.
    expect(await here()).toEqual(['report (2).doc', 'report.doc']);
    expect((await mount.readFile('report (2).doc')).toString()).toBe('new');
    await mount.close(reader);
    await listed();

    expect(there()).toEqual(['report.doc']);
    expect(await here()).toEqual(['report.doc']);
    expect((await mount.readFile('report.doc')).toString()).toBe('new');
    expect(synced.sync.status().pending).toBe(0);
  });

  test('a replaced file that is open here gives up its name even if the new file was written here', async () => {
    const { mount } = synced;
    await mount.writeFile('report (2).doc', Buffer.from('ours'));
    await synced.converge();
    await mount.close(reader);
    await listed();

    expect([...synced.service.tree()]).toEqual([['/report.doc', 'ours']]);
    expect(await here()).toEqual(['report.doc']);
  });

  test('a replaced file that is open here leaves a rename of the new file by the user unchanged', async () => {
    const { mount } = synced;
    await mount.rename('report (2).doc', 'theirs.doc');
    await synced.converge();
    await mount.close(reader);
    await listed();

    expect(there()).toEqual(['theirs.doc']);
    expect(await here()).toEqual(['theirs.doc']);
  });
});

test.each(['swapped', 'a new one'])(
  'a file that takes the name of another one in transfer is found under that name (%s)',
  async (how) => {
    const { mount, service, side } = synced;
    const [a, b] = ['a', 'b'].map((name) => service.add('file', MODEL_ROOT, name, Buffer.from(`old ${name}`))) as [
      ResourceUrl,
      ResourceUrl,
    ];
    await side.freshness.refresh();
    await mount.readFile('a');
    service.auto = null;
    await mount.writeFile('a', Buffer.from('ours'));
    for (let round = 0; round < 60 && !service.pending.some(({ name }) => name.startsWith('putVersion')); round++) {
      await synced.pass(2_000);
      for (const request of service.pending.splice(0)) {
        if (request.name.startsWith('putVersion')) service.pending.push(request);
        else request.settle({ type: 'answer' });
      }
    }
    // Somebody else, meanwhile.
    const rename = (url: ResourceUrl, name: string): void => {
      const resource = service.resources.get(url);
      if (resource !== undefined) resource.name = name;
    };
    rename(a, how === 'swapped' ? 'b' : 'a.bak');
    if (how === 'swapped') rename(b, 'a');
    else service.add('file', MODEL_ROOT, 'a', Buffer.from('new'));
    await side.freshness.refresh();
    service.auto = () => ({ type: 'answer' });
    for (const request of service.pending.splice(0)) request.settle({ type: 'answer' });
    await synced.converge();
    await listed();

    expect(await here()).toEqual(there());
    for (const name of await here()) {
      expect((await mount.readFile(name)).toString()).toBe(service.tree().get(`/${name}`));
    }
  },
);

test('of two files with one name on the service, the remaining one gets the name when the other is deleted', async () => {
  const { mount, service, side } = synced;
  service.uniqueNames = false;
  for (const text of ['first', 'second']) service.add('file', MODEL_ROOT, 'photo.jpg', Buffer.from(text));
  await side.freshness.refresh();
  expect(await here()).toEqual(['photo (2).jpg', 'photo.jpg']);
  await mount.unlink('photo.jpg');
  await synced.converge();
  await listed();

  expect(await here()).toEqual(['photo.jpg']);
  expect((await mount.readFile('photo.jpg')).toString()).toBe('second');
});
