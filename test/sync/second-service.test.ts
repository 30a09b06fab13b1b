import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { AssembledMount } from '../harness/assembled-mount.ts';
import { MemoryService } from '../remote/memory-service.ts';
import { F, PROGRAMS } from './save-programs.ts';

/** The sync over a service that is not that of HTTP: it depends on the contract alone. */

let service: MemoryService;
let assembled: AssembledMount;
let home: ResourceUrl;
beforeEach(() => open());
afterEach(() => assembled.close());

async function open(): Promise<void> {
  service = new MemoryService();
  home = (await service.user()).home;
  assembled = await AssembledMount.build(service);
}

/** `path → text` of everything on the service; a folder is null. */
async function onService(folder = home, path = ''): Promise<Record<string, string | null>> {
  const found: Record<string, string | null> = {};
  for (const { kind, url, name } of await service.list(folder)) {
    const at = `${path}${name}`;
    found[at] = kind === 'folder' ? null : await textOf(url);
    if (kind === 'folder') Object.assign(found, await onService(url, `${at}/`));
  }
  return found;
}

async function textOf(file: ResourceUrl): Promise<string> {
  const newest = await service.newestVersion(file);
  if (newest === null) return 'no version';
  return (await bytesOf(newest.url, newest.sizeBytes)).toString();
}

async function bytesOf(...[version, end]: [Parameters<MemoryService['readVersion']>[0], number]): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const chunk of (await service.readVersion(version, { start: 0, end })).chunks) parts.push(chunk);
  return Buffer.concat(parts);
}

test.each(PROGRAMS)('a save of $name makes a version of the same file on a second service', async (program) => {
  const { mount } = assembled;
  await mount.writeFile(F, Buffer.from('before'));
  await assembled.converge();
  const file = (await service.list(home))[0]?.url as ResourceUrl;

  for (const step of program.steps) await step(mount, Buffer.from('saved'), Buffer.from('before'));
  await assembled.converge();

  const { [F]: saved, ...others } = await onService();
  expect(saved).toBe('saved');
  expect(Object.keys(others).sort()).toEqual([...(program.leaves ?? [])].sort());
  expect((await service.list(home)).find(({ name }) => name === F)?.url).toBe(file);
  expect((await service.versions(file)).filter(({ complete }) => complete)).toHaveLength(2);
});

test('a mount over a second service shows its files and pushes large ones, changes, moves and deletions', async () => {
  const { mount, parts } = assembled;
  const papers = await service.createFolder(home, 'papers');
  const theirs = await service.createFile(papers, 'theirs', 'text/plain');
  await service.putFileData(theirs, bodyOf('made elsewhere'));
  await parts.freshness.refresh();
  expect((await mount.readFile('papers/theirs')).toString()).toBe('made elsewhere');

  const large = randomBytes(1_500_000);
  await mount.writeFile('papers/large', large);
  await mount.writeFile('small', Buffer.from('small'));
  await assembled.converge();
  await mount.writeFile('papers/theirs', Buffer.from('changed here'));
  await mount.rename('small', 'papers/renamed');
  await mount.rename('papers', 'letters');
  await assembled.converge();
  const [newest, before] = await service.versions(theirs);
  expect([newest?.sizeBytes, before?.sizeBytes]).toEqual([12, 14]);
  const file = (await service.list(papers)).find(({ name }) => name === 'large')?.url as ResourceUrl;
  const version = await service.newestVersion(file);
  expect(version !== null && (await bytesOf(version.url, large.byteLength)).equals(large)).toBe(true);

  await mount.unlink('letters/large');
  await assembled.converge();
  expect(await onService()).toEqual({
    letters: null,
    'letters/renamed': 'small',
    'letters/theirs': 'changed here',
  });
  const trash = (await service.trash?.trashFolder()) as ResourceUrl;
  expect((await service.list(trash)).map(({ name }) => name)).toEqual(['large']);
});

const PATHS = ['a', 'b', 'd/a', 'd/b'];
const path = fc.constantFrom(...PATHS);
const change = fc.oneof(
  fc.record({ do: fc.constant('write' as const), path, text: fc.string({ maxLength: 8 }) }),
  fc.record({ do: fc.constant('rename' as const), path, to: path }),
  fc.record({ do: fc.constant('remove' as const), path }),
  fc.record({ do: fc.constant('converge' as const) }),
);

const RUNS = Number(process.env.CFS_SYNC_RUNS ?? 25);

test(
  'after generated changes a second service has what the mount shows',
  async () => {
    const runs = fc.asyncProperty(fc.array(change, { maxLength: 24 }), async (changes) => {
      await assembled.close();
      await open();
      const { mount } = assembled;
      await mount.mkdir('d');
      const expected = new Map<string, string>();
      for (const each of changes) {
        if (each.do === 'converge') await assembled.converge();
        else if (each.do === 'write') {
          await mount.writeFile(each.path, Buffer.from(each.text));
          expected.set(each.path, each.text);
        } else if (expected.has(each.path)) {
          const text = expected.get(each.path) as string;
          if (each.do === 'remove') await mount.unlink(each.path);
          else await mount.rename(each.path, each.to);
          expected.delete(each.path);
          if (each.do === 'rename') expected.set(each.to, text);
        }
      }
      await assembled.converge();

      expect(await onService()).toEqual({ d: null, ...Object.fromEntries(expected) });
    });
    await fc.assert(runs, { numRuns: RUNS });
  },
  Math.max(30_000, RUNS * 1_000),
);

function bodyOf(text: string) {
  const bytes = Buffer.from(text);
  return {
    length: bytes.byteLength,
    chunks: async function* () {
      yield bytes;
    },
  };
}
