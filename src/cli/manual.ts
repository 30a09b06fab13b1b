import { envNameOf, optionRows } from '../config/options.ts';
import { EXIT_CODES } from '../mount/exit-codes.ts';
import type { CommandRow } from './command-row.ts';
import { CFS_MOUNT, commandRows } from './command-table.ts';

/**
 * The manual pages in the format of man(7), from the command table, the option table and the exit codes. They therefore agree with
 * `--help`. `node scripts/manual.mjs` writes them into the package.
 */
export const MANUAL_PAGES: Readonly<Record<string, (version: string) => string>> = {
  'cfs-mount.1': mountPage,
  'cfs.1': cfsPage,
};

function mountPage(version: string): string {
  return page('CFS-MOUNT', version, [
    section('NAME', text(`cfs-mount - ${CFS_MOUNT.summary}`)),
    section('SYNOPSIS', `.B cfs-mount\n[\\fIoptions\\fR] [\\fIsource\\fR] \\fIdirectory\\fR`),
    section(
      'DESCRIPTION',
      text(
        'Puts the cloud folder of a signed-in account (see cfs(1), cfs login) at a directory, and returns when it can be used; the ' +
          'mount goes on in the background until it is ended by cfs umount, umount(8) or fusermount3(1). What is saved there is on ' +
          'this machine at once and becomes a new version of the same file on the service as soon as the line allows.',
      ),
      '.PP',
      text(
        'The source names the account, as --account does. People leave it out; mount(8) and fstab(5) put it first: a line with the ' +
          'type fuse.cfs-mount mounts by mount.fuse3(8). Every option below is a word of -o there, without its dashes.',
      ),
    ),
    section('OPTIONS', ...CFS_MOUNT.flags.map(flagItem), ...optionItems()),
    section(
      'EXAMPLES',
      example('cfs-mount ~/Cloud'),
      example('cfs-mount --account ann@example.com --settle 10s ~/Cloud'),
      text('A line of /etc/fstab, for the account that root, or the user of setuid=, is signed in to:'),
      example('ann@example.com /home/ann/Cloud fuse.cfs-mount noauto,setuid=ann,settle=10s 0 0'),
    ),
    ...ending('cfs(1), mount(8), fstab(5), fuse(4), fusermount3(1), systemd.service(5)'),
  ]);
}

function cfsPage(version: string): string {
  const commands = commandRows().map((row) => `.SS ${synopsis(row)}\n${commandText(row)}`);
  return page('CFS', version, [
    section('NAME', text('cfs - looks after the cloud folders that cfs-mount mounts')),
    section('SYNOPSIS', `.B cfs\n\\fIcommand\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]`),
    section(
      'DESCRIPTION',
      text(
        'Signs in, shows and changes the state of running mounts, and looks for what is wrong. Each command takes --help.',
      ),
    ),
    section('COMMANDS', ...commands),
    ...ending('cfs-mount(1), systemd.service(5)'),
  ]);
}

function commandText(row: CommandRow): string {
  const args = row.args.map(({ name, help }) => `.TP\n.I ${roff(name)}\n${text(sentence(help))}`);
  const mount = row.mountOptions === true ? [`.PP\n${text('All options of cfs-mount(1) as well.')}`] : [];
  return [text(`${sentence(row.summary)}`), ...args, ...row.flags.map(flagItem), ...mount].join('\n');
}

/** `cfs sync [--wait] [path]`; the flags stand below it. */
function synopsis({ name, args }: CommandRow): string {
  const shown = args.map(({ name: each, isRequired, isRepeated }) => {
    const words = isRepeated === true ? `${each}...` : each;
    return isRequired ? words : `[${words}]`;
  });
  return roff(['cfs', name, ...shown].join(' '));
}

function flagItem({ flag, short, placeholder, help, default: standard, choices }: CommandRow['flags'][number]): string {
  const names = [...(short === undefined ? [] : [short]), flag].map((each) => `\\fB${roff(each)}\\fR`).join(', ');
  const value = placeholder === null ? '' : ` \\fI${roff(placeholder.slice(1, -1))}\\fR`;
  const from = choices === undefined ? '' : ` One of ${choices.join(', ')}.`;
  const without = standard === undefined ? '' : ` Default: ${standard}.`;
  return `.TP\n${names}${value}\n${text(`${sentence(help)}${from}${without}`)}`;
}

function optionItems(): string[] {
  return optionRows()
    .filter(([, option]) => !option.hidden)
    .map(([, option]) => {
      const value = option.placeholder === null ? '' : ` \\fI${roff(option.placeholder.slice(1, -1))}\\fR`;
      const without = option.placeholder === null || option.default === '' ? '' : ` Default: ${option.default}.`;
      const help = `${sentence(option.help)}${without} In the environment: ${envNameOf(option)}.`;
      return `.TP\n\\fB${roff(option.flag)}\\fR${value}\n${text(help)}`;
    });
}

function ending(seeAlso: string): string[] {
  return [
    section(
      'EXIT STATUS',
      ...Object.values(EXIT_CODES).map(({ code, meaning }) => `.TP\n.B ${code}\n${text(sentence(meaning))}`),
    ),
    section(
      'FILES',
      `.TP\n.I ~/.config/cfs/config.toml\n${text('Options of every mount: a flag without its dashes, settle = "2s". Flags are stronger than the environment, that stronger than this file.')}`,
      `.TP\n.I ~/.local/state/cfs/accounts/\n${text('One directory for each account: its sign-in (account.json, mode 0600), its store, its log.')}`,
      `.TP\n.I $XDG_RUNTIME_DIR/cfs/\n${text('The control sockets of running mounts.')}`,
    ),
    section('SEE ALSO', text(seeAlso)),
  ];
}

function page(title: string, version: string, sections: readonly string[]): string {
  return [`.TH ${title} 1 "" "cfs-mount ${roff(version)}" "User Commands"`, ...sections, ''].join('\n');
}

function section(title: string, ...parts: readonly string[]): string {
  return [`.SH ${title}`, ...parts].join('\n');
}

function example(command: string): string {
  return `.PP\n.nf\n.RS\n${text(command)}\n.RE\n.fi\n.PP`;
}

/** A line of text, escaped so that it is no roff request. */
function text(words: string): string {
  const escaped = roff(words);
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}

/** Hyphens that can be copied, no escapes of roff, nothing beyond ASCII that an old man(1) would garble. */
function roff(words: string): string {
  return words
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('~', '\\(ti')
    .replaceAll('…', '...')
    .replaceAll('→', '\\(->')
    .replaceAll('`', '')
    .replaceAll('\n', ' ');
}

/** A sentence part of the tables as a sentence. */
function sentence(part: string): string {
  const first = /^[a-z]/.test(part) && !part.startsWith('cfs') ? part[0]?.toUpperCase() + part.slice(1) : part;
  return first.endsWith('.') ? first : `${first}.`;
}
