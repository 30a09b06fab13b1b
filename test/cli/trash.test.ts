import { mkdirSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { TransportError } from '../../src/base/errors.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { deleteItems, type TrashItem, trashEmptyCommand, trashRestoreCommand } from '../../src/cli/commands/trash.ts';
import { ServiceWait } from '../../src/cli/service-wait.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { Names } from '../../src/tree/names.ts';
import { HastyClock } from '../remote/client.ts';
import { answeringMount } from './answering-mount.ts';
import { SignedInHome } from './signed-in-home.ts';

/** The trash, while somebody else uses it as well. */

let signedIn: SignedInHome;
let words: { printed: string; warned: string };

beforeEach(async () => {
  signedIn = await SignedInHome.open();
  words = { printed: '', warned: '' };
});

afterEach(() => signedIn.dispose());

function depsOf() {
  const { home } = signedIn;
  const print = (text: string): void => {
    words.printed += text;
  };
  const warn = (text: string): void => {
    words.warned += text;
  };
  return {
    paths: pathsOf(home.env),
    clock: systemClock,
    env: home.env,
    print,
    warn,
    redraw: null,
    wait: new ServiceWait({ clock: systemClock, warn }, null),
  };
}

async function trashed(name: string): Promise<ResourceUrl> {
  const file = await signedIn.upload(name, 'precious');
  await signedIn.service.moveToTrash(file, 'file', name);
  return file;
}

async function takeOut(url: ResourceUrl, kind: 'file' | 'folder', name: string): Promise<void> {
  await signedIn.service.relocate(url, kind, (await topFolder()).url, name);
}

async function topFolder() {
  const { home: url } = await signedIn.service.user();
  return { url, names: (await signedIn.service.list(url)).map(({ name }) => name) };
}

async function namesInTrash(): Promise<readonly string[]> {
  const { deletedFiles } = await signedIn.service.user();
  return (await signedIn.service.list(deletedFiles)).map(({ name }) => name);
}

/** [S-trash-1] */
test('cfs trash empty keeps a file that was restored before the confirmation', async () => {
  const back = await trashed('back');
  await trashed('gone');
  const ask = async (): Promise<string> => {
    await takeOut(back, 'file', 'back');
    return 'yes';
  };

  const code = await trashEmptyCommand({ ...depsOf(), prompt: { ask } }, { account: null, yes: false });

  expect([code, await namesInTrash(), (await topFolder()).names]).toEqual([exitCode('ok'), [], ['back']]);
  expect(words.warned).toBe('');
  expect(words.printed).toBe('1 item deleted permanently; 1 no longer in the trash, not deleted\n');
});

test('cfs trash empty deletes nothing that came into the trash after it was said what would be deleted', async () => {
  await trashed('asked about');
  const ask = async (): Promise<string> => {
    await trashed('later');
    return 'yes';
  };

  await trashEmptyCommand({ ...depsOf(), prompt: { ask } }, { account: null, yes: false });

  expect(await namesInTrash()).toEqual(['later']);
});

test('what is taken out of the trash while other things are deleted for ever is left alone', async () => {
  const [one, two] = [await itemOf(await trashed('one')), await itemOf(await trashed('two'))];
  const deleteForever: HttpService['deleteForever'] = async (url, kind) => {
    await takeOut(two.entry.url, 'file', 'two');
    return await signedIn.service.deleteForever(url, kind);
  };

  expect(await deleteItems({ ...depsOf(), service: through({ deleteForever }) }, [one, two])).toBe(1);
  expect([await namesInTrash(), (await topFolder()).names]).toEqual([[], ['two']]);
});

test('a folder that is taken out of the trash while what is in it is deleted for ever keeps the rest', async () => {
  const { service } = signedIn;
  const folder = await service.createFolder((await topFolder()).url, 'folder');
  for (const name of ['first', 'second', 'third']) await service.createFile(folder, name, 'text/plain');
  await service.moveToTrash(folder, 'folder', 'folder');
  const clock = new HastyClock();
  const deleteForever: HttpService['deleteForever'] = async (url, kind) => {
    const deleted = await service.deleteForever(url, kind);
    await takeOut(folder, 'folder', 'folder');
    clock.aheadMs += 60_000;
    return deleted;
  };
  const item = await itemOf(folder);

  expect(await deleteItems({ ...depsOf(), clock, service: through({ deleteForever }) }, [item])).toBe(0);
  expect([(await topFolder()).names, (await service.list(folder)).length]).toEqual([['folder'], 2]);
  expect(words.warned).toBe('folder was restored while it was being deleted: some of its contents are gone\n');
});

test('if the service names the trash in two ways, its listing decides what is in it', async () => {
  const [here, away] = [await itemOf(await trashed('here')), await itemOf(await trashed('away'))];
  await takeOut(away.entry.url, 'file', 'away');
  const resource: HttpService['resource'] = async (url, kind) => {
    const now = await signedIn.service.resource(url, kind);
    return now === null ? null : { ...now, parent: `${now.parent}/by/another/name` as ResourceUrl };
  };

  expect(await deleteItems({ ...depsOf(), service: through({ resource }) }, [here, away])).toBe(1);
  expect([await namesInTrash(), (await topFolder()).names]).toEqual([[], ['away']]);
});

/** The service, but for these of its answers. */
function through(changes: Partial<Pick<HttpService, 'resource' | 'deleteForever'>>) {
  const { service } = signedIn;
  return {
    trash: service.trash,
    list: (folder: ResourceUrl, signal?: AbortSignal) => service.list(folder, signal),
    resource: service.resource.bind(service),
    deleteForever: service.deleteForever.bind(service),
    ...changes,
  };
}

async function itemOf(url: ResourceUrl): Promise<TrashItem> {
  const { deletedFiles } = await signedIn.service.user();
  const entry = (await signedIn.service.list(deletedFiles)).find((each) => each.url === url);
  if (entry === undefined) throw new Error(`${url} is not in the trash`);
  return { id: url, entry };
}

test('cfs trash restore that nobody can show yet is done, and says so', async () => {
  await trashed('back');
  const { home, name } = signedIn;
  mkdirSync(home.path('Cloud'));
  const refresh = (): never => {
    throw new TransportError('no answer');
  };
  await answeringMount(home, { name, directory: home.path('Cloud') }, { refresh });

  const code = await trashRestoreCommand(depsOf(), { item: 'back', to: null, account: null });

  expect([code, (await topFolder()).names]).toEqual([exitCode('ok'), ['back']]);
  expect(words.printed).toBe('back is back in the top folder\n');
  expect(words.warned).toBe('the mount does not show it yet: the service cannot be reached: no answer\n');
});

/** [S-fresh-4] */
test.each(['in a session', 'at boot'] as const)(
  'cfs trash restore is visible in a mount that was started %s',
  async (at) => {
    await trashed('back');
    const { home, name } = signedIn;
    mkdirSync(home.path('Cloud'));
    const refreshed: (string | null)[] = [];
    const refresh = ({ path }: { readonly path: string | null }) => {
      refreshed.push(path);
      return { held: [] };
    };
    await answeringMount(home, { name, directory: home.path('Cloud') }, { refresh }, at);

    await trashRestoreCommand(depsOf(), { item: 'back', to: null, account: null });

    expect(refreshed).toEqual(['']);
  },
);

/** [S-names-2] */
test.each([
  ['AC\uff0fDC', 'AC/DC'],
  ['bell\u0007', 'bell\u2407'],
])('cfs trash restore --to %j is called so in the mount', async (shown, there) => {
  await trashed('back');
  const { home, name } = signedIn;
  mkdirSync(home.path('Cloud'));
  const { url } = await topFolder();
  const locate = () => ({ path: '', kind: 'folder', sizeBytes: 0, resource: url, isPending: false }) as const;
  await answeringMount(home, { name, directory: home.path('Cloud') }, { locate, refresh: () => ({ held: [] }) });

  await trashRestoreCommand(depsOf(), { item: 'back', to: home.path(`Cloud/${shown}`), account: null });

  expect((await topFolder()).names).toEqual([there]);
  expect(new Names().toFileName(there)).toBe(shown);
});
