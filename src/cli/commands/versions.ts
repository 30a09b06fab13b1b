import { UsageError } from '../../base/errors.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import { formatBytes } from '../../config/units.ts';
import type { Located } from '../../control/status-model.ts';
import type { NamedVersion } from '../../fs/file-history.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import { DOCUMENTS_MS_MAX, type ServiceDeps, withService } from '../service-access.ts';
import { findInMount } from './file-in-mount.ts';
import { namedVersions } from './version-choice.ts';

/** `cfs versions FILE`: the versions of a file on the service, newest first. */
export async function versionsCommand(
  deps: ServiceDeps & CommandOutput,
  flags: { readonly file: string; readonly json: boolean },
): Promise<number> {
  const { mount, located } = await findInMount(deps, flags.file);
  if (located.kind === 'folder') throw new UsageError(`${visible(flags.file)} is a folder: it has no versions`);
  const { resource } = located;
  const versions =
    resource === null
      ? []
      : await withService(deps, mount.name, async (service) =>
          namedVersions(await service.versions(resource as ResourceUrl, AbortSignal.timeout(DOCUMENTS_MS_MAX))),
        );
  if (flags.json) deps.print(`${JSON.stringify(versionsRecord(located, versions), null, 2)}\n`);
  else for (const line of versionLines(located, versions)) deps.print(`${line}\n`);
  return exitCode('ok');
}

/** One line per version: name, size, and a mark at the current one. */
export function versionLines(located: Located, versions: readonly NamedVersion[]): readonly string[] {
  const width = versions.reduce((most, { name }) => Math.max(most, name.length), 0);
  const lines = versions.map(({ name, version }, index) => {
    const size = formatBytes(version.sizeBytes).padStart(9);
    return `${name.padEnd(width)} ${size}${index === 0 ? '  latest' : ''}`;
  });
  if (versions.length === 0) lines.push(`no version of ${visible(located.path)} is on the service yet`);
  if (located.isPending) lines.push('the local version is not on the service yet: it becomes the next version');
  return lines;
}

/** The output of `--json`: stable; new fields may be added. */
function versionsRecord(located: Located, versions: readonly NamedVersion[]) {
  return {
    schema: 1,
    path: located.path,
    isPending: located.isPending,
    versions: versions.map(({ name, version }, index) => ({
      name,
      sizeBytes: version.sizeBytes,
      savedMs: version.lastModifiedMs,
      isLatest: index === 0,
    })),
  };
}
