import { constants } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { examineStore } from '../../src/cli/doctor/store-examination.ts';
import { writePinnedNodes } from '../../src/store/pinned-nodes.ts';
import { SETTLE_MS, SyncedSide } from '../harness/synced-side.ts';
import { type Fate, MODEL_ROOT, MODEL_TRASH } from './model-service.ts';

/** Saves that take over a history after the service has been told of the rename or the deletion: the conditions, failures and crashes. */

const F = 'report.txt';
const BACKUP = `${F}~`;
const BEFORE = 'written elsewhere';
const SAVED = 'saved here';
const WINDOW_MS = 60_000;

let world: SyncedSide;
let file: ResourceUrl;
beforeEach(() => build());
afterEach(() => world.close());

async function build(options: Parameters<typeof SyncedSide.build>[0] = {}): Promise<void> {
  world = await SyncedSide.build(options);
  file = world.service.add('file', MODEL_ROOT, F, Buffer.from(BEFORE));
  await world.mount.stat(F);
}

/** The file is renamed away, and the service knows it. */
async function renameAway(to = BACKUP): Promise<void> {
  await world.mount.rename(F, to);
  await world.converge();
}

async function unlink(): Promise<void> {
  await world.mount.unlink(F);
  await world.converge();
}

async function create(): Promise<void> {
  await world.mount.writeFile(F, Buffer.from(SAVED));
  await world.converge();
}

function versionsOf(versions: readonly { readonly bytes: Buffer; readonly complete: boolean }[]): readonly string[] {
  return versions.filter(({ complete }) => complete).map(({ bytes }) => bytes.toString());
}

/** `name → versions, the newest first`, of what is in a folder. */
function histories(folder: ResourceUrl = MODEL_ROOT): Record<string, readonly string[]> {
  const there = world.service.childrenOf(folder).filter(({ kind }) => kind === 'file');
  return Object.fromEntries(there.map(({ name, versions }) => [name, versionsOf(versions)]));
}

const KEPT = { [F]: [SAVED, BEFORE], [BACKUP]: [BEFORE] };
const NOT_KEPT = { [F]: [SAVED], [BACKUP]: [BEFORE] };

async function pin(path: string): Promise<void> {
  const { ino } = await world.mount.stat(path);
  world.side.store.transact((tx) => writePinnedNodes(tx, [ino]));
}

describe('a file that was renamed to a backup name', () => {
  test('keeps its history under its name, and the backup is a copy', async () => {
    await renameAway();
    const requests = world.service.requests.length;
    await create();

    expect(histories()).toEqual(KEPT);
    expect(world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === F)?.url).toBe(file);
    expect((await world.mount.readFile(BACKUP)).toString()).toBe(BEFORE);
    expect((await world.mount.readFile(F)).toString()).toBe(SAVED);
    // Three changes and two reads beside the three requests of any new version.
    const asked = world.service.requests.slice(requests).map((name) => name.split(' ')[0]);
    const expected = ['resource', 'copyFile', 'resource', 'relocate', 'relocate'];
    expect(asked.sort()).toEqual([...expected, 'createVersion', 'putVersionData', 'versions'].sort());
    expect(world.service.receivedBytes).toBe(SAVED.length);
  });

  test.each([BACKUP, `${F}.1`, `${F}.bak`, `.${F}.x`])('keeps its history after a rename to %s', async (name) => {
    await renameAway(name);
    await create();
    expect(histories()).toEqual({ [F]: [SAVED, BEFORE], [name]: [BEFORE] });
  });

  test('keeps its history if the backup was deleted before the save was pushed', async () => {
    await renameAway();
    await world.mount.writeFile(F, Buffer.from(SAVED));
    await world.mount.unlink(BACKUP);
    await world.converge();
    expect(histories()).toEqual({ [F]: [SAVED, BEFORE] });
    expect(histories(MODEL_TRASH)).toEqual({});
    expect(world.service.requests.filter((name) => name.startsWith('copyFile'))).toEqual([]);
  });

  test('keeps its history without a copy if the backup was changed', async () => {
    await renameAway();
    await world.mount.writeFile(F, Buffer.from(SAVED));
    await world.mount.writeFile(BACKUP, Buffer.from('another text'));
    await world.converge();
    expect(histories()).toEqual({ [F]: [SAVED, BEFORE], [BACKUP]: ['another text'] });
  });

  test('keeps its history through saves one after another', async () => {
    for (const text of ['one', 'two', 'three']) {
      await renameAway();
      await world.mount.writeFile(F, Buffer.from(text));
      await world.converge();
    }
    expect(histories()).toEqual({ [F]: ['three', 'two', 'one', BEFORE], [BACKUP]: ['two'] });
  });
});

describe('the history stays with the renamed file', () => {
  test('if the new file comes after --save-window', async () => {
    await renameAway();
    await world.pass(WINDOW_MS);
    await create();
    expect(histories()).toEqual(NOT_KEPT);
  });

  test.each(['pushed', 'not pushed'])('if its new name does not contain the old one (its rename %s)', async (when) => {
    await world.mount.readFile(F);
    await world.mount.rename(F, '2024.txt');
    if (when === 'pushed') await world.converge();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED], '2024.txt': [BEFORE] });
    expect(world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === '2024.txt')?.url).toBe(file);
  });

  test.each(['pushed', 'not pushed'])('if it is in another folder (its rename %s)', async (when) => {
    await world.mount.mkdir('d');
    await world.converge();
    await world.mount.readFile(F);
    await world.mount.rename(F, `d/${BACKUP}`);
    if (when === 'pushed') await world.converge();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
    expect(world.service.look(file)?.name).toBe(BACKUP);
  });

  test('if it is moved to another folder after the new file was created', async () => {
    await world.mount.mkdir('d');
    await renameAway();
    await world.mount.writeFile(F, Buffer.from(SAVED));
    await world.mount.rename(BACKUP, `d/${BACKUP}`);
    await world.converge();
    expect(histories()).toEqual({ [F]: [SAVED] });
  });

  test('if a program has it open for writing', async () => {
    const fd = await world.mount.open(F, constants.O_RDWR);
    await renameAway();
    await create();
    expect(histories()).toEqual(NOT_KEPT);
    await world.mount.close(fd);
  });

  test('if it has a public link', async () => {
    world.service.publicFiles.add(file);
    await renameAway();
    await create();
    expect(histories()).toEqual(NOT_KEPT);
  });

  test('if it is pinned', async () => {
    await pin(F);
    await renameAway();
    await create();
    expect(histories()).toEqual(NOT_KEPT);
  });

  test('if another client saved it meanwhile', async () => {
    await renameAway();
    world.service.addVersion(file, Buffer.from('saved elsewhere'));
    await create();
    expect(histories()).toEqual({ [F]: [SAVED], [BACKUP]: ['saved elsewhere', BEFORE] });
  });

  test('if another client saved it, with the same length, meanwhile', async () => {
    await renameAway();
    world.service.nowMs += 60_000;
    world.service.addVersion(file, Buffer.from(BEFORE.toUpperCase()));
    await create();
    expect(histories()).toEqual({ [F]: [SAVED], [BACKUP]: [BEFORE.toUpperCase(), BEFORE] });
  });

  test('if another client moved it meanwhile', async () => {
    await renameAway();
    const resource = world.service.resources.get(file);
    if (resource !== undefined) resource.name = 'their name';
    await create();
    expect(histories()).toEqual({ [F]: [SAVED], 'their name': [BEFORE] });
  });

  test('with --delete forever', async () => {
    await world.close();
    await build({ deletion: 'forever' });
    await renameAway();
    await create();
    expect(histories()).toEqual(NOT_KEPT);
  });
});

describe('a deleted file', () => {
  test('comes back from the trash with its history', async () => {
    await unlink();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED, BEFORE] });
    expect(histories(MODEL_TRASH)).toEqual({});
  });

  test('comes back on a service that copies no files', async () => {
    world.service.copies = false;
    await unlink();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED, BEFORE] });
  });

  test('comes back without a conflicted copy of a save whose upload its removal ended too late', async () => {
    world.service.auto = (name) => {
      if (name.startsWith('createVersion')) world.service.auto = null;
      return { type: 'answer' };
    };
    await world.mount.writeFile(F, Buffer.from('sent and removed'));
    await world.pass(SETTLE_MS);
    const [upload] = world.service.pending;
    expect(upload?.name).toMatch(/^putVersionData/);
    world.service.auto = (name) => {
      // The service has had all bytes of it, and completes it at last.
      if (name.startsWith('createVersion')) upload?.settle({ type: 'lose-reply' });
      return { type: 'answer' };
    };
    await unlink();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED, 'sent and removed', BEFORE] });
  });

  const IN_TRASH: Readonly<Record<string, () => Promise<void>>> = {
    'its name is taken after --save-window': async () => world.pass(WINDOW_MS),
    'it has a public link': async () => void world.service.publicFiles.add(file),
    'another client saved it': async () => void world.service.addVersion(file, Buffer.from('saved elsewhere')),
  };
  test.each(Object.entries(IN_TRASH))('stays in the trash if %s', async (_why, happen) => {
    await unlink();
    await happen();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
    expect(world.service.look(file)?.parent).toBe(MODEL_TRASH);
  });

  test('stays in the trash if it is pinned', async () => {
    await pin(F);
    await unlink();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
    expect(histories(MODEL_TRASH)).toEqual({ [F]: [BEFORE] });
  });

  test('stays where another client restored it', async () => {
    const folder = world.service.add('folder', MODEL_ROOT, 'restored');
    await unlink();
    const resource = world.service.resources.get(file);
    if (resource !== undefined) resource.parent = folder;
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
    expect(histories(folder)).toEqual({ [F]: [BEFORE] });
  });

  test('is not made again after the trash was emptied', async () => {
    await unlink();
    world.service.resources.delete(file);
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
  });

  test('stays in the trash if another client deleted it', async () => {
    const resource = world.service.resources.get(file);
    if (resource !== undefined) resource.parent = MODEL_TRASH;
    await world.side.freshness.refresh();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
    expect(histories(MODEL_TRASH)).toEqual({ [F]: [BEFORE] });
  });

  test('stays in the trash if it was renamed away before', async () => {
    await renameAway('2024.txt');
    await world.mount.unlink('2024.txt');
    await world.converge();
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
  });

  test('is not asked for with --delete forever', async () => {
    await world.close();
    await build({ deletion: 'forever' });
    await unlink();
    const requests = world.service.requests.length;
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
    expect(world.service.requests.slice(requests).filter((name) => name.startsWith('resource'))).toEqual([]);
  });
});

test.each(['deleted', 'renamed away'])(
  'a file that is %s during its take-over is not created under its old name',
  async (how) => {
    await unlink();
    const { service, mount } = world;
    await mount.writeFile(F, Buffer.from(SAVED));
    service.auto = null;
    await world.pass(SETTLE_MS);
    service.settleAll({ type: 'answer' });
    await world.pass(0);
    expect(service.pending.map(({ name }) => name)).toEqual([`relocate ${file} ${F}`]);
    if (how === 'deleted') await mount.unlink(F);
    else await mount.rename(F, 'another name');
    service.auto = () => ({ type: 'answer' });
    service.settleAll({ type: 'answer' });
    await world.converge();
    expect(histories()).toEqual(how === 'deleted' ? {} : { 'another name': [SAVED] });
    expect(histories(MODEL_TRASH)).toEqual({ [F]: [BEFORE] });
    expect(service.violations).toEqual([]);
  },
);

test.each(['deleted', 'renamed'])(
  'a new file that is saved over another one, whose upload has begun, during its take-over of a %s file',
  async (how) => {
    const { service, mount } = world;
    await mount.writeFile('other', Buffer.from('first'));
    await world.converge();
    const other = service.childrenOf(MODEL_ROOT).find(({ name }) => name === 'other')?.url;
    await (how === 'deleted' ? unlink() : renameAway());
    service.auto = null;
    await mount.writeFile('other', Buffer.from('obsolete'));
    await world.pass(SETTLE_MS);
    expect(service.pending.map(({ name }) => name)).toEqual([`createVersion ${other}`]);
    const [begun] = service.pending.splice(0);
    await mount.writeFile(F, Buffer.from(SAVED));
    await world.pass(SETTLE_MS);
    expect(service.pending.length).toBe(1);

    await mount.rename(F, 'other');
    service.auto = () => ({ type: 'answer' });
    service.settleAll({ type: 'answer' });
    for (let round = 0; round < 20; round++) await world.pass(SETTLE_MS);
    begun?.settle({ type: 'answer' });
    await world.converge();

    expect(histories()).toMatchObject({ other: [SAVED, 'obsolete', 'first'] });
    expect(Object.keys(histories())).toEqual(how === 'deleted' ? ['other'] : [BACKUP, 'other']);
    expect([...world.side.intents.open()]).toEqual([]);
    expect(service.violations).toEqual([]);
  },
);

describe('a save is made as a new file', () => {
  const fates: readonly (readonly [string, Fate])[] = [
    ...[400, 403, 404, 405, 409, 413, 429, 500, 503].map(
      (status) => [`answers ${status}`, { type: 'refuse', status }] as const,
    ),
    ['loses the request', { type: 'lose-request' }],
  ];
  test.each(fates)('if the service %s to the copy', async (_how, fate) => {
    await renameAway();
    world.service.auto = (name) => (name.startsWith('copyFile') ? fate : { type: 'answer' });
    await create();
    expect(histories()).toEqual(NOT_KEPT);
    expect(world.sync.status().parked).toEqual([]);
  });

  test('if the service copies no files', async () => {
    world.service.copies = false;
    await renameAway();
    await create();
    expect(histories()).toEqual(NOT_KEPT);
  });

  test('if the copy has another length, and the copy is deleted', async () => {
    world.service.copyLacks = 1;
    await renameAway();
    await create();
    expect(histories()).toEqual(NOT_KEPT);
    expect(Object.values(histories(MODEL_TRASH))).toEqual([[BEFORE.slice(0, -1)]]);
  });

  test('if the service does not answer within ten seconds, and a late copy is deleted', async () => {
    await renameAway();
    world.service.auto = null;
    await world.mount.writeFile(F, Buffer.from(SAVED));
    const answer = async (): Promise<void> => {
      for (const request of world.service.pending.filter(({ name }) => !name.startsWith('copyFile'))) {
        world.service.pending.splice(world.service.pending.indexOf(request), 1);
        request.settle({ type: 'answer' });
      }
      await world.pass(0);
    };
    for (let second = 0; second < 6; second++) {
      await world.pass(1_000);
      for (let turn = 0; turn < 4; turn++) await answer();
    }
    const [copy] = world.service.pending;
    expect(copy?.name).toContain('copyFile');
    for (let second = 0; second < 8; second++) {
      await world.pass(1_000);
      for (let turn = 0; turn < 8; turn++) await answer();
    }
    expect(histories()).toEqual(NOT_KEPT);

    world.service.add('file', MODEL_ROOT, copy?.name.split(' ')[1] ?? '', Buffer.from(BEFORE));
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    for (let round = 0; round < 60; round++) await world.pass(10_000);
    expect(histories()).toEqual(NOT_KEPT);
    expect([...world.side.intents.open()]).toEqual([]);
  });

  test.each([403, 409, 413])('if the service answers %i to the way back from the trash', async (status) => {
    await unlink();
    world.service.auto = (name) => (name.startsWith('relocate') ? { type: 'refuse', status } : { type: 'answer' });
    await create();
    expect(histories()).toEqual({ [F]: [SAVED] });
    expect(histories(MODEL_TRASH)).toEqual({ [F]: [BEFORE] });
  });
});

/** Every request of a take-over gets that fate, one per case, with and without a SIGKILL. */
describe.each(['goes on', 'is killed'])('a mount that %s', (how) => {
  const interruptions = (['renamed', 'deleted'] as const).flatMap((what) =>
    (['lose-reply', 'lose-request'] as const).flatMap((fate) =>
      Array.from({ length: what === 'renamed' ? 8 : 5 }, (_, at) => ({ what, fate, at })),
    ),
  );
  test.each(interruptions)(
    'when request $at of the save of a $what file has the fate $fate, loses nothing',
    async ({ what, fate, at }) => {
      if (what === 'renamed') await renameAway();
      else await unlink();
      const { service } = world;
      await world.mount.writeFile(F, Buffer.from(SAVED));
      let asked = 0;
      let isCut = false;
      service.auto = () => {
        if (asked++ < at) return { type: 'answer' };
        const isFirst = !isCut;
        isCut = true;
        return { type: isFirst || how === 'is killed' ? (isFirst ? fate : 'lose-request') : 'answer' };
      };
      for (let round = 0; round < 6 && !isCut; round++) await world.pass(SETTLE_MS / 2);
      expect(isCut).toBe(true);
      if (how === 'is killed') {
        const before = world;
        const directory = before.side.snapshot();
        await before.close();
        // The process died in a copy, or on the way back from the trash: nothing is damaged.
        expect(await examineStore(directory, 'bytes')).toMatchObject({ state: 'opened', shown: [] });
        world = await SyncedSide.build({ left: before, directory });
      }
      service.auto = () => ({ type: 'answer' });
      await world.converge();
      for (let round = 0; round < 60; round++) await world.pass(10_000);
      await world.converge();

      const there = histories();
      const names = what === 'renamed' ? [F, BACKUP] : [F];
      expect(Object.keys(there).sort()).toEqual(names.sort());
      expect(there[F]?.[0]).toBe(SAVED);
      if (what === 'renamed') expect(there[BACKUP]).toEqual([BEFORE]);
      else expect([...world.service.allBytes()]).toContain(BEFORE);
      expect((await world.mount.readFile(F)).toString()).toBe(SAVED);
      expect([...world.side.intents.open()]).toEqual([]);
      expect(world.sync.status().parked).toEqual([]);
      // Before the copy or the way back is sent, only this process knows of the save. A request that never arrived is not repeated.
      const isGivenUp = (at === 0 && how === 'is killed') || (at === 1 && fate === 'lose-request');
      expect(there[F]).toEqual(isGivenUp ? [SAVED] : [SAVED, BEFORE]);
    },
  );
});
