/**
 * Every command of `cfs` and the command line of `cfs-mount`, once, as plain data. The programs, their `--help`, shell
 * completion, the manual pages and the table in README.md are made from it; what a command does is in `command-actions`.
 * Options of a mount stand in `config/options`: a row with `mountOptions` takes them too.
 */

import { LOG_LEVELS } from '../base/log-level.ts';
import { ACCOUNT, argument, type CommandRow, duration, JSON_SWITCH, optional, TIMEOUT, toggle } from './command-row.ts';
import { SERVE_COMMANDS } from './serve-table.ts';

/** What stands in front of `<words> <command>`, for `--help`. */
export const GROUPS: Readonly<Record<string, string>> = {
  service: 'mounts that systemd starts and ends',
  trash: 'what was deleted',
  share: 'files that others may read',
  config: 'the options of a mount',
  'serve user': 'the accounts of the service that runs here',
  'serve key': 'keys of applications',
  'serve application': 'applications that may sign in',
  'serve share': 'folders that one account lets another see',
};

export const COMMANDS = [
  {
    name: 'login',
    summary: 'sign in to the service; what neither flags nor environment give is asked for',
    args: [optional('url', 'where the service is, for instance https://api.example.com (CFS_URL)', null)],
    flags: [
      { flag: '--username', placeholder: '<address>', help: 'who signs in (CFS_USERNAME)' },
      toggle('--password-stdin', 'the password is the first line of standard input (CFS_PASSWORD)'),
      { flag: '--application', placeholder: '<id>', help: 'the application ID (CFS_APPLICATION)' },
      { flag: '--access-key-id', placeholder: '<id>', help: "the application's key (CFS_ACCESS_KEY_ID)" },
      {
        flag: '--private-access-key-file',
        placeholder: '<file>',
        help: 'a file with the secret of that key in its first line (CFS_PRIVATE_ACCESS_KEY is the secret)',
        completion: 'path',
      },
      toggle('--insecure', 'send the password without encryption to another machine'),
      TIMEOUT,
    ],
  },
  {
    name: 'logout',
    summary: 'take token and keys from this machine; what was not pushed yet stays for the next sign-in',
    args: [],
    flags: [toggle('--forget', 'take away the local copies too; refused while something is here only'), ACCOUNT],
  },
  { name: 'accounts', summary: 'who is signed in, and where it is mounted', args: [], flags: [JSON_SWITCH] },
  {
    name: 'status',
    summary: 'what is mounted, pending and parked',
    args: [],
    flags: [JSON_SWITCH, toggle('--watch', 'show it again and again, until Ctrl-C')],
  },
  {
    name: 'versions',
    summary: 'the versions that the service keeps of a file, newest first',
    args: [argument('file', 'a file in the mount')],
    flags: [JSON_SWITCH, TIMEOUT],
  },
  {
    name: 'restore',
    summary: 'make a file what it was: FILE@VERSION, named as cfs versions does, `latest`, or -2 (two before)',
    args: [argument('file@version', 'a file in the mount, and which version')],
    flags: [
      { flag: '--to', placeholder: '<path>', help: 'write a new file there instead', completion: 'path' },
      TIMEOUT,
    ],
  },
  {
    name: 'diff',
    summary: 'compare two versions, FILE@V1 and FILE@V2, or one and FILE as it is now',
    args: [argument('before', 'FILE@VERSION or FILE'), argument('after', 'FILE@VERSION or FILE')],
    flags: [
      { flag: '--tool', placeholder: '<command>', help: 'what compares: `diff -u` if not given (CFS_DIFF)' },
      TIMEOUT,
    ],
  },
  {
    name: 'trash list',
    summary: 'what was deleted and can be had back',
    args: [],
    flags: [JSON_SWITCH, TIMEOUT, ACCOUNT],
  },
  {
    name: 'trash restore',
    summary: 'take something out of the trash',
    args: [argument('item', 'its name, or its id as cfs trash list shows it', null)],
    flags: [
      {
        flag: '--to',
        placeholder: '<path>',
        help: 'a folder in the mount, or a new name in one; without it: the top folder',
        completion: 'path',
      },
      TIMEOUT,
      ACCOUNT,
    ],
  },
  {
    name: 'trash empty',
    summary: 'delete permanently what is in the trash',
    args: [],
    flags: [toggle('--yes', 'do not ask'), TIMEOUT, ACCOUNT],
  },
  {
    name: 'share link',
    summary: 'give a file a public link and print it: whoever knows it can read the file',
    args: [argument('file', 'a file in the mount')],
    flags: [toggle('--off', 'take the link away'), TIMEOUT],
  },
  {
    name: 'sync',
    summary: 'push at once everything that was closed until now',
    args: [optional('path', 'a file or folder in the mount; without one: everything')],
    flags: [
      toggle('--wait', 'return when it is with the service; of files that are still open it says how many'),
      duration('--timeout', 'stop waiting after this long'),
      ACCOUNT,
    ],
  },
  {
    name: 'refresh',
    summary: 'ask the service what is there now, and return when the mount shows it',
    args: [optional('path', 'a folder in the mount; without one: every folder in use')],
    flags: [toggle('--accept', 'believe that many files at once are gone'), TIMEOUT, ACCOUNT],
  },
  {
    name: 'pin',
    summary: 'keep a file, or all that is in a folder now and later, complete on this machine',
    args: [argument('path', 'a file or folder in the mount')],
    flags: [],
  },
  {
    name: 'unpin',
    summary: 'keep it no longer; what is here stays until its room is needed',
    args: [argument('path', 'a file or folder in the mount')],
    flags: [],
  },
  {
    name: 'retry',
    summary: 'try again what is parked',
    args: [optional('path', 'a file or folder in the mount; without one: everything')],
    flags: [ACCOUNT],
  },
  {
    name: 'discard',
    summary: 'give up what is pending or parked: what is here becomes what the service has',
    args: [argument('path', 'a file in the mount, or a folder with all that is in it (also what was deleted there)')],
    flags: [toggle('--yes', 'do it; without it only what would be lost is shown'), ACCOUNT],
  },
  {
    name: 'umount',
    summary: 'end a mount in order, when everything is pushed',
    args: [optional('directory', 'which mount, where several are running', 'directory')],
    flags: [
      toggle('--now', 'do not push what is pending; it is kept and pushed at the next start'),
      duration('--timeout', 'push what is pending for at most this long'),
      ACCOUNT,
    ],
  },
  {
    name: 'doctor',
    summary: 'look at everything that a mount needs, and say of each fault what to do',
    args: [],
    flags: [
      toggle('--store', 'only the local store, every byte of it; the account must not be mounted'),
      toggle('--json', 'everything, for scripts'),
      { ...ACCOUNT, help: 'which account; without it: every one that is signed in' },
    ],
  },
  {
    name: 'service install',
    summary: 'mount whenever you sign in to this machine, by a systemd unit of yours, and now',
    args: [argument('directory', 'where to mount; it must exist', 'directory')],
    flags: [ACCOUNT],
    mountOptions: true,
  },
  {
    name: 'service remove',
    summary: 'end that mount in order, and take its unit away',
    args: [optional('directory', 'which one, where several are installed', 'directory')],
    flags: [],
  },
  {
    name: 'export',
    summary: 'copy out what exists on this machine only, pending and parked; needs no service and no mount',
    args: [argument('directory', 'where to; made if it is missing, and empty otherwise', 'directory')],
    flags: [ACCOUNT],
  },
  {
    name: 'config show',
    summary: 'the options of a mount as they would be, and where each value comes from',
    args: [],
    flags: [JSON_SWITCH],
    mountOptions: true,
  },
  { name: 'metrics', summary: 'the counters of running mounts, as Prometheus reads them', args: [], flags: [ACCOUNT] },
  {
    name: 'log-level',
    summary: 'how much the log of a running mount says, from now on; without a level it is told',
    args: [{ ...optional('level', 'until the mount ends', null), choices: LOG_LEVELS }],
    flags: [ACCOUNT],
  },
  {
    name: 'completion',
    summary: 'print what a shell needs to complete these commands: source <(cfs completion bash)',
    args: [{ ...argument('shell', 'bash, zsh or fish', null), choices: ['bash', 'zsh', 'fish'] }],
    flags: [],
  },
  {
    name: 'demo',
    summary: 'try it out: an embedded server with a demo account, mounted in front (npm start)',
    args: [optional('directory', 'where to mount; made if it is missing (default: ~/Cloud)', 'directory')],
    flags: [],
    mountOptions: true,
  },
  ...SERVE_COMMANDS,
] as const satisfies readonly CommandRow[];

export type CommandName = (typeof COMMANDS)[number]['name'];

/** `COMMANDS`, without the narrow types of its literals. */
export function commandRows(): readonly (CommandRow & { readonly name: CommandName })[] {
  return COMMANDS;
}

/** The command line of `cfs-mount`. */
export const CFS_MOUNT: CommandRow = {
  name: 'cfs-mount',
  summary: 'puts your cloud folder at a directory: an ordinary directory from then on, also without a network',
  // mount(8) and fstab(5) put a source first; people do not have to.
  usage: '[options] [source] <directory>',
  args: [
    argument('directory', 'where to mount; it must exist and be empty', 'directory'),
    optional('target', 'the same, where a source stands before it: which account', 'directory'),
  ],
  flags: [
    { ...ACCOUNT, help: 'which account, where several are signed in (cfs status lists them)' },
    {
      flag: '-o',
      placeholder: '<words>',
      isRepeated: true,
      help: 'as mount(8) has them: ro,noatime,uid=1000,… (may be repeated)',
    },
    { flag: '--foreground', short: '-f', placeholder: null, help: 'stay in front and print a line per event' },
  ],
  mountOptions: true,
};
