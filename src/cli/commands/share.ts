import { join } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import { formatBytes } from '../../config/units.ts';
import { callControl } from '../../control/client.ts';
import { PATHS_MAX } from '../../control/methods.ts';
import { chooseAccount } from '../../mount/account-file.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { runningMounts } from '../../mount/running-mounts.ts';
import { needed } from '../../remote/capability.ts';
import type { CommandOutput } from '../command-output.ts';
import { DOCUMENTS_MS_MAX, type ServiceDeps, withService } from '../service-access.ts';
import { findFileInMount } from './file-in-mount.ts';

/** `cfs share link FILE [--off]`: anyone with the link can read the file and its later versions. Prints only the link. */
export async function shareLinkCommand(
  deps: ServiceDeps & CommandOutput,
  flags: { readonly file: string; readonly state: 'on' | 'off' },
): Promise<number> {
  const { mount, located, resource } = await findFileInMount(deps, flags.file);
  const link = await withService(deps, mount.name, (service) =>
    needed(service.links, 'has no public links').setPublicLink(
      resource,
      flags.state,
      AbortSignal.timeout(DOCUMENTS_MS_MAX),
    ),
  );
  if (flags.state === 'off') {
    deps.print(`${visible(flags.file)} no longer has a public link\n`);
    return exitCode('ok');
  }
  if (link === null)
    throw new UsageError(`the service returned no link for ${visible(flags.file)}`, exitCode('unreachable'));
  deps.print(`${visible(link)}\n`);
  if (located.isPending) deps.warn('the local version is not on the service yet: the link shows the previous one\n');
  return exitCode('ok');
}

/**
 * `cfs share list`: every file of the account that anyone can read by a link, by its path in the mount; by its name alone if nothing is
 * mounted, or the mount does not know the file.
 */
export async function shareListCommand(
  deps: ServiceDeps & CommandOutput,
  flags: { readonly account: string | null; readonly json: boolean },
): Promise<number> {
  const { name } = chooseAccount(deps.paths, flags.account);
  const found = await withService(deps, name, async (service) => {
    const sharing = needed(service.links, 'has no public links');
    const linked = [];
    for (const file of await sharing.publicLinks(AbortSignal.timeout(DOCUMENTS_MS_MAX))) {
      deps.wait.moved();
      const link = await sharing.publicLink(file.url, AbortSignal.timeout(DOCUMENTS_MS_MAX));
      // The link was removed since the listing.
      if (link !== null) linked.push({ name: file.name, sizeBytes: file.sizeBytes, url: file.url, link });
    }
    return linked;
  });
  const places = await placesOf(deps, name, found);
  const shownOf = ({ name: file, url }: { readonly name: string; readonly url: string }): string =>
    places.get(url) ?? file;
  const links = found
    .map((each) => ({ ...each, path: places.get(each.url) ?? null }))
    .sort((one, other) => (shownOf(one) < shownOf(other) ? -1 : 1));
  if (flags.json) deps.print(`${JSON.stringify({ schema: 1, links }, null, 2)}\n`);
  else {
    for (const each of links) {
      const size = formatBytes(each.sizeBytes ?? 0).padStart(9);
      deps.print(`${visible(each.link)}  ${size}  ${visible(shownOf(each))}\n`);
    }
    if (links.length === 0) deps.print('no file has a public link\n');
  }
  return exitCode('ok');
}

/** The paths of files by their addresses, as far as a running mount of the account knows them. */
async function placesOf(
  { paths }: Pick<ServiceDeps, 'paths'>,
  account: string,
  files: readonly { readonly url: string }[],
): Promise<ReadonlyMap<string, string>> {
  const places = new Map<string, string>();
  const mount = files.length === 0 ? undefined : (await runningMounts(paths)).find(({ name }) => name === account);
  if (mount === undefined) return places;
  for (let at = 0; at < files.length; at += PATHS_MAX) {
    const resources = files.slice(at, at + PATHS_MAX).map(({ url }) => url);
    const known = await callControl(mount.socketPath, 'paths', { resources });
    for (const [index, path] of known.paths.entries())
      if (path !== null) places.set(resources[index] as string, join(mount.status.directory, path));
  }
  return places;
}
