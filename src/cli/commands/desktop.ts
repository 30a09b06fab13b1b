import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, isAbsolute, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../../base/errors.ts';
import { thumbnailersDirectory } from '../../config/paths.ts';
import { removeThumbnails } from '../../mount/desktop-thumbnails.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { withPath } from '../../mount/failure.ts';
import { visible } from '../../mount/mount-event.ts';
import { ENTRY_NAME, jpegThumbnailer, PERL, thumbnailerEntry } from '../../mount/thumbnailer-entry.ts';

interface DesktopDeps {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly print: (text: string) => void;
}

/**
 * `cfs desktop install`: file managers of this user show thumbnails of JPEG files in a mount without reading the files. For all other
 * JPEG files they run the thumbnailer that they ran before.
 *
 * @throws UsageError without Perl
 */
export function installDesktop(deps: DesktopDeps): number {
  if (!existsSync(PERL))
    throw new UsageError(`${PERL} does not exist: install Perl (on Debian: apt install perl-base)`);
  const folder = thumbnailersDirectory(deps.env);
  const path = join(folder, ENTRY_NAME);
  const other = otherThumbnailer(deps);
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${path}.new`, thumbnailerEntry(other));
    renameSync(`${path}.new`, path);
  } catch (error) {
    rmSync(`${path}.new`, { force: true });
    throw withPath(error, path);
  }
  deps.print(`wrote ${visible(path)}\n`);
  deps.print(
    other === null
      ? 'no other thumbnailer for JPEG files is installed: pictures outside a mount get no thumbnails\n'
      : `pictures outside a mount: ${visible(other)}\n`,
  );
  sayHowToGetEmblems(deps.print);
  deps.print('a file manager that is running uses this after its next start (Nautilus: nautilus -q)\n');
  return exitCode('ok');
}

/** Nautilus loads the extensions of the system only. */
function sayHowToGetEmblems(print: (text: string) => void): void {
  const libraries = '/usr/lib';
  const isInstalled = ['.', ...entriesOf(libraries)].some((folder) =>
    existsSync(join(libraries, folder, 'nautilus/extensions-4/libcfs-nautilus.so')),
  );
  const source = fileURLToPath(new URL('../../../desktop', import.meta.url));
  if (isInstalled) return;
  // The Debian package of the programs has no sources.
  const how = existsSync(source) ? `sudo make -C ${visible(source)} install` : 'install the package cfs-desktop';
  print(`emblems and a menu in Nautilus, and the sidebar, are for all users of this machine: ${how}\n`);
}

/** `cfs desktop uninstall`: also a success where nothing is installed. */
export async function uninstallDesktop({ env, print }: DesktopDeps): Promise<number> {
  const path = join(thumbnailersDirectory(env), ENTRY_NAME);
  const thumbnails = await removeThumbnails(env, null);
  if (thumbnails > 0) print(`removed ${thumbnails} thumbnails that mounts wrote\n`);
  if (!existsSync(path)) {
    print('the thumbnailer is not installed\n');
    return exitCode('ok');
  }
  try {
    rmSync(path);
  } catch (error) {
    throw withPath(error, path);
  }
  print(`removed ${visible(path)}\n`);
  return exitCode('ok');
}

/** The thumbnailer for JPEG files that a desktop would take without ours: directories in the order of the XDG base directory specification. */
function otherThumbnailer({ env }: DesktopDeps): string | null {
  const given =
    env.XDG_DATA_DIRS === undefined || env.XDG_DATA_DIRS === '' ? '/usr/local/share:/usr/share' : env.XDG_DATA_DIRS;
  const system = given.split(delimiter).filter((path) => isAbsolute(path));
  for (const folder of [thumbnailersDirectory(env), ...system.map((path) => join(path, 'thumbnailers'))]) {
    for (const name of entriesIn(folder)) {
      const found = jpegThumbnailer(readFileSync(join(folder, name), 'utf8'));
      if (found !== null && (found.tryExec === null || isProgram(found.tryExec, env.PATH ?? ''))) return found.exec;
    }
  }
  return null;
}

function entriesIn(folder: string): readonly string[] {
  const isOther = (name: string): boolean => name.endsWith('.thumbnailer') && name !== ENTRY_NAME;
  return entriesOf(folder).filter(isOther).sort();
}

function entriesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function isProgram(name: string, path: string): boolean {
  if (isAbsolute(name)) return existsSync(name);
  return path.split(delimiter).some((folder) => existsSync(resolve(folder, name)));
}
