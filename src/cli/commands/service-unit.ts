/** The contents of a systemd unit. */
export interface ServiceUnit {
  /** The description: `ann@example.com at /home/ann/Cloud`. */
  readonly title: string;
  readonly directory: string;
  /** Program and arguments, the program by an absolute path. */
  readonly command: readonly string[];
  /** Environment variables that the user's service manager does not set. */
  readonly env: Readonly<Record<string, string>>;
  /** Limit of an orderly stop, ms. */
  readonly stopMs: number;
  /** Exit codes after which a restart is useless. */
  readonly lasting: readonly number[];
}

/** systemd restarts a mount whose main thread is silent for this long; normally it answers within milliseconds. */
const WATCHDOG_SECONDS = 180;

/** The variable as one word, also with spaces in it (systemd.service(5)). */
const WHOLE_DIRECTORY = '\x24{DIRECTORY}';

/** The name of the unit for a directory: `cfs-mount-home-ann-Cloud.service`, as systemd-escape(1) --path has it. */
export function unitNameOf(directory: string): string {
  return `cfs-mount-${escapedPath(directory)}.service`;
}

/** The text of the unit: systemd.service(5), for the manager of one user. */
export function unitText({ title, directory, command, env, stopMs, lasting }: ServiceUnit): string {
  const variables = Object.entries(env).map(([name, value]) => `Environment=${setting(`${name}=${value}`)}`);
  const lines = [
    '# Made by `cfs service install`; `cfs service remove` takes it away.',
    ...unitSection(`Cloud folder of ${oneLine(title)}`),
    ...serviceSection({ before: variables, start: command.map(quoted).join(' '), stopMs, lasting }),
    ...installSection('default.target'),
    `# ${oneLine(directory)}`,
    '',
  ];
  return lines.join('\n');
}

/**
 * A unit template (systemd.unit(5)) of a package. For a user's manager the instance is a directory, as systemd-escape(1) --path writes it. For the
 * system's manager it is a user; `/etc/cfs-mount/USER` sets the directory and further options.
 *
 * @param program the absolute path of `cfs-mount`, which stays the same over upgrades
 */
export function unitTemplate(
  manager: 'user' | 'system',
  { program, stopMs, lasting }: { readonly program: string } & Pick<ServiceUnit, 'stopMs' | 'lasting'>,
): string {
  const isSystem = manager === 'system';
  const before = isSystem
    ? ['User=%i', 'WorkingDirectory=~', 'Environment=DIRECTORY=Cloud', 'EnvironmentFile=-/etc/cfs-mount/%i']
    : [];
  const start = `${program} --foreground -- ${isSystem ? WHOLE_DIRECTORY : '%f'}`;
  const lines = [
    isSystem
      ? '# systemctl enable --now cfs-mount@USER: USER is signed in (cfs login), and has a directory ~/Cloud.'
      : '# systemctl --user enable --now "cfs-mount@$(systemd-escape --path ~/Cloud).service"',
    ...unitSection(isSystem ? 'Cloud folder of the user %i' : 'Cloud folder %f'),
    ...serviceSection({ before, start, stopMs, lasting }),
    ...installSection(isSystem ? 'multi-user.target' : 'default.target'),
  ];
  return lines.join('\n');
}

function unitSection(description: string): string[] {
  return [
    '[Unit]',
    `Description=${description}`,
    'Documentation=man:cfs-mount(1) man:cfs(1)',
    '# A mount needs no network to start: it does not wait for one.',
    'StartLimitIntervalSec=0',
    '',
  ];
}

function serviceSection({
  before,
  start,
  stopMs,
  lasting,
}: {
  readonly before: readonly string[];
  /** The command line, escaped. */
  readonly start: string;
} & Pick<ServiceUnit, 'stopMs' | 'lasting'>): string[] {
  return [
    '[Service]',
    'Type=notify',
    '# The keeper of --continuity stores the connection of the mount, so that programs only wait when the service is restarted after a death.',
    'NotifyAccess=all',
    'FileDescriptorStoreMax=4',
    'OOMPolicy=continue',
    ...before,
    `ExecStart=${start}`,
    '# The launcher passes the signal on; whatever does not end by then is killed together.',
    'KillMode=mixed',
    `TimeoutStopSec=${Math.ceil(stopMs / 1000)}`,
    `WatchdogSec=${WATCHDOG_SECONDS}`,
    'Restart=on-failure',
    'RestartSec=1',
    `RestartPreventExitStatus=${lasting.join(' ')}`,
    '',
  ];
}

function installSection(target: string): string[] {
  return ['[Install]', `WantedBy=${target}`, ''];
}

/** systemd.unit(5), "String escaping for inclusion in unit names". */
function escapedPath(path: string): string {
  const trimmed = path.replace(/\/+/g, '/').replace(/^\/|\/$/g, '');
  if (trimmed === '') return '-';
  return [...Buffer.from(trimmed)]
    .map((byte, at) => {
      const character = String.fromCharCode(byte);
      if (character === '/') return '-';
      if (/[a-zA-Z0-9:_]/.test(character) || (character === '.' && at > 0)) return character;
      return `\\x${byte.toString(16).padStart(2, '0')}`;
    })
    .join('');
}

/** systemd.service(5), "Command lines": quoted, without variable substitution. */
function quoted(word: string): string {
  return setting(word).replaceAll('$', '$$$$');
}

/** systemd.exec(5), `Environment=`: C escapes in double quotes, and no specifiers; a dollar sign has no meaning there. */
function setting(word: string): string {
  const escaped = word
    .replace(/[\\"]/g, '\\$&')
    .replace(/\p{Cc}/gu, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`)
    .replaceAll('%', '%%');
  return /^[\w@:.,/=+-]+$/.test(word) ? word : `"${escaped}"`;
}

/** Specifiers are expanded in descriptions too, and a backslash at the end would continue the line. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\\]/gu, '?').replaceAll('%', '%%');
}
