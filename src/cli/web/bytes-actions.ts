import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import type { NamedVersion } from '../../fs/file-history.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { chooseMount } from '../../mount/running-mounts.ts';
import { needed } from '../../remote/capability.ts';
import type { RemoteService } from '../../remote/contract.ts';
import type { BytesActions } from '../../web/page-call.ts';
import type { CommandContext } from '../command-context.ts';
import { findFileInMount } from '../commands/file-in-mount.ts';
import { chooseVersion, namedVersions } from '../commands/version-choice.ts';
import { DOCUMENTS_MS_MAX, withService } from '../service-access.ts';
import { captured } from './captured-output.ts';

type Context = Pick<CommandContext, 'paths' | 'clock' | 'env'>;
type Place = { readonly account: string; readonly path: string };

/** Longer side of a preview, pixels. */
const PICTURE_SIDE_MAX = 480;

/** What the page shows or saves of files. */
export function bytesActions(context: Context): BytesActions {
  const fileAt = async ({ account, path }: Place): Promise<string> => {
    const { directory } = (await chooseMount(context.paths, { directory: null, account })).status;
    const place = resolve(directory, path);
    if (place.startsWith(`${directory}/`)) return place;
    throw new UsageError(`${visible(path)} is not in the mount`);
  };
  /** Without a limit for the whole: bytes may take as long as they progress. */
  const onService = async (
    at: Place,
    use: (service: RemoteService, file: ResourceUrl) => Promise<void>,
  ): Promise<void> => {
    const place = await fileAt(at);
    const run = async (deps: Parameters<Parameters<typeof captured>[1]>[0]): Promise<number> => {
      const { mount, resource } = await findFileInMount(deps, place);
      await withService(deps, mount.name, (service) => use(service, resource));
      return exitCode('ok');
    };
    await captured(context, run, null);
  };
  return {
    content: async (at, send) => {
      const file = await open(await fileAt(at), 'r');
      try {
        if (!(await file.stat()).isFile()) throw new UsageError(`${visible(at.path)} is not a file`);
        await send('application/octet-stream', file.createReadStream({ autoClose: false }));
      } finally {
        await file.close();
      }
    },
    version: ({ version, ...at }, send) =>
      onService(at, async (service, file) => {
        const { url, sizeBytes } = (await versionOf(service, file, version, at.path)).version;
        const { chunks } = await service.readVersion(url, { start: 0, end: sizeBytes }, sizeBytes);
        await send('application/octet-stream', chunks);
      }),
    picture: ({ version, ...at }, send) =>
      onService(at, async (service, file) => {
        const pictures = needed(service.pictures, 'has no pictures in other sizes');
        const image = version === null ? file : (await versionOf(service, file, version, at.path)).version.url;
        const form = { widthMax: PICTURE_SIDE_MAX, heightMax: PICTURE_SIDE_MAX };
        await send('image/jpeg', await pictures.transcodedImage(image, form, AbortSignal.timeout(DOCUMENTS_MS_MAX)));
      }),
  };
}

async function versionOf(service: RemoteService, file: ResourceUrl, name: string, path: string): Promise<NamedVersion> {
  const versions = await service.versions(file, AbortSignal.timeout(DOCUMENTS_MS_MAX));
  return chooseVersion(namedVersions(versions), name, path);
}
