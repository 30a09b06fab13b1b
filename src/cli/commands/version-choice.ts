import { UsageError } from '../../base/errors.ts';
import type { RemoteVersion } from '../../base/resources.ts';
import { type NamedVersion, named } from '../../fs/file-history.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';

/** The complete versions, by their names in `.versions/`. */
export function namedVersions(versions: readonly RemoteVersion[]): readonly NamedVersion[] {
  return named(versions.filter(({ complete }) => complete));
}

/** A parsed `FILE@VERSION`; without a version it means the present file. */
export interface VersionOf {
  readonly file: string;
  readonly version: string | null;
}

/** The last `@` separates, because names may contain others. An existing file of the whole name means that file. */
export function parseVersionOf(text: string, exists: (path: string) => boolean): VersionOf {
  const at = text.lastIndexOf('@');
  if (at <= 0 || exists(text)) return { file: text, version: null };
  return { file: text.slice(0, at), version: text.slice(at + 1) };
}

/**
 * The chosen version: by its name or the start of it (as `2026-11-20T13.05` or with colons), `latest`, or `-2` for two
 * before the latest.
 *
 * @param versions newest first
 * @throws UsageError (missing, usage) if none or several match
 */
export function chooseVersion(versions: readonly NamedVersion[], wanted: string, file: string): NamedVersion {
  const shown = visible(file);
  const [latest] = versions;
  if (latest === undefined)
    throw new UsageError(`${shown} has no version on the service yet: cfs sync --wait pushes it`, exitCode('missing'));
  const back = /^-(\d{1,6})$/.exec(wanted);
  const counted = wanted === 'latest' ? latest : back === null ? undefined : versions[Number(back[1])];
  if (counted !== undefined) return counted;
  const name = wanted.replaceAll(':', '.');
  const exact = versions.find((version) => version.name === name);
  const fitting = exact === undefined && name !== '' ? versions.filter((version) => version.name.startsWith(name)) : [];
  const [only, second] = exact === undefined ? fitting : [exact];
  if (second !== undefined)
    throw new UsageError(`${fitting.length} versions of ${shown} begin with ${visible(wanted)}: give more of the time`);
  if (only === undefined)
    throw new UsageError(`${shown} has no version ${visible(wanted)}: cfs versions lists them`, exitCode('missing'));
  return only;
}
