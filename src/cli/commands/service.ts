import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../../base/errors.ts';
import { OPTIONS, type OptionKey, type Options } from '../../config/options.ts';
import { accountPaths, type Paths } from '../../config/paths.ts';
import { formatDuration } from '../../config/units.ts';
import { chooseAccount, withProxy, writeAccountFile } from '../../mount/account-file.ts';
import { EXIT_CODES, exitCode } from '../../mount/exit-codes.ts';
import { withPath } from '../../mount/failure.ts';
import { visible } from '../../mount/mount-event.ts';
import { namedPathOf } from '../../mount/mount-point.ts';
import { ROUTE_VARIABLES, routeTo } from '../../mount/service-route.ts';
import { flagsThatSet } from '../option-flags.ts';
import { unitNameOf, unitTemplate, unitText } from './service-unit.ts';

/** The time of a stop beyond the push of pending changes. */
const STOP_MS = 30_000;
const PACKAGED_PROGRAM = '/usr/bin/cfs-mount';
const SYSTEMCTL_MS_MAX = 90_000;
/** Exit codes that a restart cannot cure. */
const LASTING = [EXIT_CODES.usage.code, EXIT_CODES.noFuse.code, EXIT_CODES.mountPoint.code, EXIT_CODES.signIn.code];
/** Variables with locations and the route. The user's service manager starts services without them. */
const VARIABLES = ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', ...ROUTE_VARIABLES] as const;

interface ServiceDeps {
  readonly paths: Paths;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly print: (text: string) => void;
  /** For tests; 90 s otherwise. */
  readonly systemctlMsMax?: number;
}

/** Why a systemctl call failed. */
class Undone {
  readonly why: string;
  /** systemctl accepted the request, but did not finish in time. */
  readonly isUnderWay: boolean;
  /** False: systemctl does not exist. */
  readonly isThere: boolean;

  constructor(why: string, how: { readonly isUnderWay?: boolean; readonly isThere?: boolean } = {}) {
    this.why = why;
    this.isUnderWay = how.isUnderWay === true;
    this.isThere = how.isThere !== false;
  }
}

/**
 * `cfs service install DIR`: installs a unit of this user's systemd manager that mounts now and at every login to this machine.
 * If no manager answers (no session), it writes the unit and prints how to start it. Without systemctl it installs
 * nothing.
 *
 * A proxy from the environment of this command becomes an option in the unit, because the manager starts the mount without this
 * environment. Its password is saved with the account, because all users can read a unit.
 *
 * @param given the mount options from the command line or the environment
 * @throws UsageError without a matching account or the directory; (noManager) without systemctl
 */
export async function installService(
  deps: ServiceDeps & { readonly options: Options; readonly given: Partial<Record<OptionKey, string>> },
  flags: { readonly directory: string; readonly account: string | null },
): Promise<number> {
  const { name, account } = chooseAccount(deps.paths, flags.account);
  const directory = namedPathOf(flags.directory);
  const refuse = (reason: string): never => {
    throw new UsageError(`${visible(directory)} ${reason}`, exitCode('mountPoint'));
  };
  const found = statSync(directory, { throwIfNoEntry: false });
  if (found === undefined) refuse('does not exist: create the directory first');
  else if (!found.isDirectory()) refuse('is not a directory');
  const { proxy } = routeTo(account.origin, { env: deps.env, options: deps.options, known: account });
  const isNew = deps.options.proxy === null && proxy !== null;
  const given = isNew ? { ...deps.given, proxy: proxy.address } : deps.given;
  const unit = unitNameOf(directory);
  const folder = unitFolder(deps);
  const path = join(folder, unit);
  const text = unitText({
    title: `${account.username} at ${directory}`,
    directory,
    command: [
      ...mountProgram(),
      '--foreground',
      '--account',
      name,
      ...flagsThatSet(given, deps.options),
      '--',
      directory,
    ],
    env: Object.fromEntries(VARIABLES.flatMap((key) => (deps.env[key] ? [[key, deps.env[key]]] : []))),
    stopMs: deps.options.drainMs + STOP_MS,
    lasting: LASTING,
  });
  mkdirSync(folder, { recursive: true });
  try {
    writeFileSync(`${path}.new`, text, { mode: 0o644 });
    renameSync(`${path}.new`, path);
  } catch (error) {
    rmSync(`${path}.new`, { force: true });
    throw withPath(error, path);
  }
  if (proxy !== null && proxy.credentials !== null)
    writeAccountFile(accountPaths(deps.paths, name).accountFile, withProxy(account, proxy));

  const started = systemctl(deps, 'daemon-reload') ?? systemctl(deps, 'enable', '--now', unit);
  if (started?.isThere === false) {
    rmSync(path);
    const line = `${account.username} ${fieldOf(directory)} fuse.cfs-mount setuid=${userInfo().username} 0 0`;
    throw new UsageError(
      `this system has no systemctl, so nothing was installed; this line in /etc/fstab mounts at every boot: ${visible(line)}`,
      exitCode('noManager'),
    );
  }
  deps.print(`wrote ${visible(path)}\n`);
  if (isNew) deps.print(`the mount uses the proxy ${proxy.address}, set by ${proxy.source}\n`);
  if (proxy !== null && proxy.credentials !== null)
    deps.print("the proxy's user name and password are kept with the account, not in the unit\n");
  if (started === null) {
    deps.print(`mounted at ${visible(directory)}, now and at each login to this machine\n`);
    deps.print('to mount at boot, and to stay mounted after you log out: loginctl enable-linger\n');
    return exitCode('ok');
  }
  deps.print(`not started (${started.why}); to start it: systemctl --user enable --now '${unit}'\n`);
  return exitCode('noManager');
}

/** A unit template of the Debian package: see `unitTemplate`. */
export function packagedUnit(manager: 'user' | 'system'): string {
  const drainMs = OPTIONS.drainMs.parse(OPTIONS.drainMs.default);
  return unitTemplate(manager, { program: PACKAGED_PROGRAM, stopMs: drainMs + STOP_MS, lasting: LASTING });
}

/**
 * The command by which a unit starts `cfs-mount`: the link of the Debian package, if it leads to this program, because an upgrade removes
 * the directory of this version. Otherwise the paths of Node and of this program.
 *
 * @param link another link, for tests
 */
export function mountProgram(link: string = PACKAGED_PROGRAM): readonly string[] {
  const wrapper = fileURLToPath(new URL('../../../bin/cfs-mount', import.meta.url));
  try {
    if (realpathSync(link) === realpathSync(wrapper)) return [link];
  } catch {
    // The link does not exist.
  }
  return [process.execPath, fileURLToPath(new URL('../cfs-mount.js', import.meta.url))];
}

/** fstab(5): white space in a field is written as three octal digits. */
function fieldOf(path: string): string {
  return path.replace(/[\s\\]/g, (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, '0')}`);
}

/** `cfs service remove [DIR]`: unmounts and removes the unit. */
export async function removeService(deps: ServiceDeps, flags: { readonly directory: string | null }): Promise<number> {
  const folder = unitFolder(deps);
  const unit = chooseUnit(folder, flags.directory);
  const stopped = systemctl(deps, 'disable', '--now', unit);
  rmSync(join(folder, unit), { force: true });
  // If no manager could remove it.
  rmSync(enabledLink(folder, unit), { force: true });
  systemctl(deps, 'daemon-reload');
  deps.print(`removed ${visible(join(folder, unit))}\n`);
  if (stopped?.isUnderWay === true) deps.print(`${stopped.why}: the mount may still be pushing changes\n`);
  else if (stopped !== null)
    deps.print(`systemd did not stop the mount (${stopped.why}): run cfs umount if it is still running\n`);
  return exitCode('ok');
}

/** Whether a unit that `installService` wrote for the directory is enabled. Without a manager it writes the unit and cannot enable it. */
export function hasService(deps: Pick<ServiceDeps, 'paths'>, directory: string): boolean {
  return existsSync(enabledLink(unitFolder(deps), unitNameOf(namedPathOf(directory))));
}

/** The link that `systemctl enable` makes. */
function enabledLink(folder: string, unit: string): string {
  return join(folder, 'default.target.wants', unit);
}

/** @throws UsageError if none or several match */
function chooseUnit(folder: string, directory: string | null): string {
  const units = unitsIn(folder);
  const wanted = directory === null ? null : unitNameOf(namedPathOf(directory));
  const fitting = units.filter((unit) => wanted === null || unit === wanted);
  const [only, second] = fitting;
  if (only !== undefined && second === undefined) return only;
  if (second !== undefined)
    throw new UsageError(`several services are installed (${units.join(', ')}): name the directory`);
  throw new UsageError(
    directory === null ? 'no service is installed' : `no service is installed for ${visible(directory)}`,
    exitCode('notMounted'),
  );
}

function unitsIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder).filter((name) => name.startsWith('cfs-mount-') && name.endsWith('.service'));
  } catch {
    return [];
  }
}

/** systemd.unit(5), "User Unit Search Path". */
function unitFolder({ paths }: Pick<ServiceDeps, 'paths'>): string {
  return join(paths.configFile, '..', '..', 'systemd', 'user');
}

/** @returns null on success, otherwise the reason of the failure */
function systemctl({ env, systemctlMsMax: timeout = SYSTEMCTL_MS_MAX }: ServiceDeps, ...args: string[]): Undone | null {
  const result = spawnSync('systemctl', ['--user', ...args], { encoding: 'utf8', timeout, env });
  if ((result.error as NodeJS.ErrnoException | undefined)?.code === 'ETIMEDOUT')
    return new Undone(`systemctl did not answer within ${formatDuration(timeout)}`, { isUnderWay: true });
  if (result.error !== undefined) return new Undone('systemctl cannot be run', { isThere: false });
  if (result.status === 0) return null;
  const said = visible(result.stderr.trim().split('\n', 1)[0] ?? '');
  return new Undone(said || `systemctl ended with ${result.status}`);
}
