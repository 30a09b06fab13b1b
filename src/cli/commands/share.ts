import { UsageError } from '../../base/errors.ts';
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
