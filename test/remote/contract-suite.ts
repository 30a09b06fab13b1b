import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { UploadProgress } from '../../src/base/resources.ts';
import type { ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { RemoteService, RequestBody, Uploads } from '../../src/remote/contract.ts';

/** Capabilities that a service may lack. */
type Capability = 'uploads' | 'trash' | 'copies' | 'links' | 'pictures' | 'downloads' | 'wholeAccount';

export interface ContractOptions {
  /** Opens a service with a user who is signed in and an empty home folder. */
  open(): Promise<{ readonly service: RemoteService; close(): Promise<void> }>;
  readonly lacks: readonly Capability[];
}

/** What src/remote/contract.ts demands of each service, as tests: a new implementation must pass them. */
export function contractSuite(title: string, options: ContractOptions): void {
  describe(title, () => {
    const has = (capability: Capability): boolean => !options.lacks.includes(capability);
    let opened: Awaited<ReturnType<ContractOptions['open']>>;
    let service: RemoteService;
    let home: ResourceUrl;
    beforeAll(async () => {
      opened = await options.open();
      service = opened.service;
      home = (await service.user()).home;
    });
    afterAll(() => opened.close());

    const uploads = (): Uploads => service.uploads as Uploads;
    const newFile = async (name: string, ...texts: readonly string[]): Promise<ResourceUrl> => {
      const file = await service.createFile(home, name, 'text/plain');
      for (const text of texts) await uploads().putFileData(file, bodyOf(text), 'text/plain');
      return file;
    };
    const namesIn = async (folder: ResourceUrl): Promise<readonly string[]> =>
      (await service.list(folder)).map(({ name }) => name).sort();
    const newestText = async (file: ResourceUrl): Promise<string> => {
      const newest = await service.newestVersion(file);
      return newest === null ? '' : await textOf(newest.url, newest.sizeBytes);
    };
    /** One attempt to send the rest of `0123456789`. */
    const continued = async (version: VersionUrl): Promise<UploadProgress> => {
      const held = (await uploads().versionProgress(version))?.receivedBytes ?? 0;
      return await uploads().putVersionData(version, held, bodyOf('0123456789'.slice(held)));
    };
    const textOf = async (version: VersionUrl, size: number, start = 0, end = size): Promise<string> => {
      const { extent, chunks } = await service.readVersion(version, { start, end }, size);
      const parts: Uint8Array[] = [];
      for await (const chunk of chunks) parts.push(Buffer.from(chunk));
      return Buffer.concat(parts)
        .subarray(start - extent.start, end - extent.start)
        .toString();
    };

    test('the service has the capabilities that it names, and no others', () => {
      const lacking = (
        ['uploads', 'trash', 'copies', 'links', 'pictures', 'downloads', 'wholeAccount'] as const
      ).filter((capability) => service[capability] === null);
      expect(lacking.sort()).toEqual([...options.lacks].sort());
      expect(service.signInRequired).toBe(false);
    });

    test('an entry is listed once, under its newest name and in its newest folder', async () => {
      const [from, to] = [await service.createFolder(home, 'from'), await service.createFolder(home, 'to')];
      const file = await service.createFile(from, 'first name', 'text/plain');
      const now = await service.relocate(file, 'file', to, 'second & <name>');

      expect([await namesIn(from), await namesIn(to)]).toEqual([[], ['second & <name>']]);
      expect(await service.resource(now, 'file')).toMatchObject({ name: 'second & <name>', parent: to });
      const page = await service.listPage(to, 0);
      expect(page).toMatchObject({ hasMore: false, entries: [{ url: now, kind: 'file' }] });
    });

    test('a file without data has neither a length nor a version', async () => {
      const file = await newFile('no data');

      expect(await service.resource(file, 'file')).toMatchObject({ sizeBytes: null, presentOnServer: false });
      expect(await service.newestVersion(file)).toBeNull();
    });

    test('a deleted resource does not exist, and deleting it again is success', async () => {
      const file = await newFile('deleted');
      const folder = await service.createFolder(home, 'deleted folder');

      for (const [url, kind] of [
        [file, 'file'],
        [folder, 'folder'],
      ] as const) {
        expect(await service.deleteForever(url, kind)).toBe('deleted');
        expect(await service.resource(url, kind)).toBeNull();
        expect(await service.deleteForever(url, kind)).toBeNull();
      }
      expect(await service.newestVersion(file)).toBeNull();
      await expect(service.versions(file)).rejects.toMatchObject({ name: 'ApiError', status: 404 });
    });

    test.runIf(has('uploads'))('versions are listed newest first and keep their bytes', async () => {
      const file = await newFile('history', 'one', 'second');

      const versions = await service.versions(file);
      expect(versions.map(({ sizeBytes, complete }) => [sizeBytes, complete])).toEqual([
        [6, true],
        [3, true],
      ]);
      expect(versions[1] && (await textOf(versions[1].url, 3))).toBe('one');
      expect(versions[0] && (await textOf(versions[0].url, 6, 2, 5))).toBe('con');
      expect(await service.versionOfLength(file, 3)).toMatchObject({ url: versions[1]?.url });
      expect(await service.versionOfLength(file, 4)).toBeNull();
    });

    test.runIf(has('uploads'))(
      'an upload that broke off is completed from the bytes that the service holds',
      async () => {
        const file = await newFile('broken off', 'before');
        const version = await uploads().createVersion(file);
        const broken: RequestBody = {
          length: 10,
          chunks: async function* () {
            yield Buffer.from('01234');
            throw new Error('the line broke');
          },
        };
        await expect(uploads().putVersionData(version, 0, broken)).rejects.toThrow();

        expect(await uploads().versionProgress(version)).toMatchObject({ complete: false });
        expect(await newestText(file)).toBe('before');
        await expect(uploads().putVersionData(version, 9, bodyOf('9'))).rejects.toMatchObject({ status: 416 });
        // The service may still be storing what arrived: a refusal says that another number of bytes is there by now.
        await expect.poll(() => continued(version)).toEqual({ complete: true, receivedBytes: 10 });
        expect(await newestText(file)).toBe('0123456789');
        expect((await service.newestVersion(file))?.url).toBe(version);
      },
    );

    test.runIf(has('trash'))('what is moved to the trash is listed there under its name', async () => {
      const trash = service.trash ?? expect.unreachable();
      const file = await newFile('rubbish');

      expect(await trash.moveToTrash(file, 'file', 'rubbish')).toBe('deleted');
      expect(await namesIn(await trash.trashFolder())).toEqual(['rubbish']);
      expect(await namesIn(home)).not.toContain('rubbish');
    });

    test.runIf(has('copies') && has('uploads'))(
      'a copy has the bytes of the newest version and its own history',
      async () => {
        const source = await newFile('source', 'old', 'newest');

        const copy = await service.copies?.copyFile(source, home, 'copy');
        expect(copy).not.toBe(source);
        expect(await newestText(copy as ResourceUrl)).toBe('newest');
        expect(await service.versions(copy as ResourceUrl)).toHaveLength(1);
      },
    );

    test.runIf(has('links'))('a public link exists until it is removed', async () => {
      const links = service.links ?? expect.unreachable();
      const file = await newFile('shown');

      expect(await links.publicLink(file)).toBeNull();
      const link = await links.setPublicLink(file, 'on');
      expect([link, await links.publicLink(file)]).toEqual([expect.any(String), link]);
      expect(await service.resource(file, 'file')).toMatchObject({ isPublic: true });
      expect(await links.setPublicLink(file, 'off')).toBeNull();
      expect(await service.resource(file, 'file')).not.toMatchObject({ isPublic: true });
      expect(await links.publicLink(file)).toBeNull();
    });
  });
}

function bodyOf(text: string): RequestBody {
  const bytes = Buffer.from(text);
  return {
    length: bytes.byteLength,
    chunks: async function* () {
      yield bytes;
    },
  };
}
