import { UsageError } from '../../base/errors.ts';
import { formatBytes } from '../../config/units.ts';
import { chooseAccount } from '../../mount/account-file.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
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

/** `cfs share list`: every file of the account that anyone can read by a link, by name. */
export async function shareListCommand(
  deps: ServiceDeps & CommandOutput,
  flags: { readonly account: string | null; readonly json: boolean },
): Promise<number> {
  const { name } = chooseAccount(deps.paths, flags.account);
  const links = await withService(deps, name, async (service) => {
    const sharing = needed(service.links, 'has no public links');
    const found = [];
    for (const file of await sharing.publicLinks(AbortSignal.timeout(DOCUMENTS_MS_MAX))) {
      deps.wait.moved();
      const link = await sharing.publicLink(file.url, AbortSignal.timeout(DOCUMENTS_MS_MAX));
      // The link was removed since the listing.
      if (link !== null) found.push({ name: file.name, sizeBytes: file.sizeBytes, url: file.url, link });
    }
    return found.sort((one, other) => (one.name < other.name ? -1 : 1));
  });
  if (flags.json) deps.print(`${JSON.stringify({ schema: 1, links }, null, 2)}\n`);
  else {
    for (const { name: file, sizeBytes, link } of links)
      deps.print(`${visible(link)}  ${formatBytes(sizeBytes ?? 0).padStart(9)}  ${visible(file)}\n`);
    if (links.length === 0) deps.print('no file has a public link\n');
  }
  return exitCode('ok');
}
