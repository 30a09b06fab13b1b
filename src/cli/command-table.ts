/**
 * Every command of `cfs` and the command line of `cfs-mount`, as plain data. The programs, `--help`, shell completion, the
 * manual pages and the table in README.md are generated from it. The actions are in `command-actions`.
 * The mount options are in `config/options`: a row with `mountOptions` accepts them too.
 */

import { LOG_LEVELS } from '../base/log-level.ts';
import { ACCOUNT, argument, type CommandRow, duration, JSON_SWITCH, optional, TIMEOUT, toggle } from './command-row.ts';
import { SERVE_COMMANDS } from './serve/serve-table.ts';

/** The heading of each command group in `--help`. */
export const GROUPS: Readonly<Record<string, string>> = {
  desktop: 'file managers',
  service: 'mounts that systemd starts and stops',
  trash: 'deleted files and folders',
  share: 'public links to files',
  config: 'mount options',
  'serve user': 'accounts of the service that runs on this machine',
  'serve key': 'access keys of applications',
  'serve application': 'applications that can sign in',
  'serve share': 'folders that one account shares with another',
};

/** `mine` and `theirs` are seen from this machine; `original` and `copy` name the files. */
export const CONFLICT_CHOICES = ['mine', 'theirs', 'both', 'original', 'copy'] as const;
const CONFLICT_SIDES_HELP =
  'mine (saved on this machine), theirs, both; original or copy for a copy that another machine made';

export const COMMANDS = [
  {
    name: 'login',
    summary: 'sign in to the service; prompts for values that neither flags nor the environment provide',
    args: [optional('url', 'address of the service, such as https://api.example.com (CFS_URL)', null)],
    flags: [
      { flag: '--username', placeholder: '<address>', help: 'the user name (CFS_USERNAME)' },
      toggle(
        '--password-stdin',
        'read the password from the first line of standard input (CFS_PASSWORD, CFS_PASSWORD_FILE)',
      ),
      { flag: '--application', placeholder: '<id>', help: 'the application ID (CFS_APPLICATION)' },
      {
        flag: '--access-key-id',
        placeholder: '<id>',
        help: 'the access key ID of the application (CFS_ACCESS_KEY_ID)',
      },
      {
        flag: '--private-access-key-file',
        placeholder: '<file>',
        help: 'a file whose first line is the secret of that key (CFS_PRIVATE_ACCESS_KEY_FILE; CFS_PRIVATE_ACCESS_KEY holds the secret itself)',
        completion: 'path',
      },
      toggle('--insecure', 'allow an unencrypted connection to another machine; it exposes the password'),
      TIMEOUT,
    ],
  },
  {
    name: 'logout',
    summary: 'remove the token and keys from this machine; unpushed changes stay for the next sign-in',
    args: [],
    flags: [toggle('--forget', 'remove the local copies too; refused while data exists only on this machine'), ACCOUNT],
  },
  { name: 'accounts', summary: 'list the signed-in accounts and their mounts', args: [], flags: [JSON_SWITCH] },
  {
    name: 'status',
    summary: 'show mounts, pending changes, and parked changes, which need your attention',
    args: [],
    flags: [JSON_SWITCH, toggle('--watch', 'refresh the output until Ctrl-C')],
  },
  {
    name: 'log',
    summary: 'show what happened: pushes, changes made elsewhere, conflicts, pins and the connection, oldest first',
    args: [optional('path', 'a file or folder in the mount; default: everything')],
    flags: [toggle('--follow', 'print new events until Ctrl-C or until the mount ends'), JSON_SWITCH, ACCOUNT],
  },
  {
    name: 'versions',
    summary: 'list the versions of a file that the service keeps, newest first',
    args: [argument('file', 'a file in the mount')],
    flags: [JSON_SWITCH, TIMEOUT],
  },
  {
    name: 'restore',
    summary: 'restore a version of a file (FILE@VERSION); with --at, all files of a folder as they were at a time',
    args: [
      argument(
        'file@version',
        'a file and a version: a name from cfs versions, `latest`, or -2 (two before the latest); with --at, a file or folder',
      ),
    ],
    flags: [
      {
        flag: '--at',
        placeholder: '<time>',
        help: 'the time that each file in PATH is restored to, such as 2026-11-20T13:05 or 2026-11-20',
      },
      {
        flag: '--to',
        placeholder: '<path>',
        help: 'write to this new file instead of replacing the file',
        completion: 'path',
      },
      TIMEOUT,
    ],
  },
  {
    name: 'diff',
    summary: 'compare two versions of a file, or one version with the current file',
    args: [argument('before', 'FILE@VERSION or FILE'), argument('after', 'FILE@VERSION or FILE')],
    flags: [
      { flag: '--tool', placeholder: '<command>', help: 'the comparison command; default: `diff -u` (CFS_DIFF)' },
      TIMEOUT,
    ],
  },
  {
    name: 'trash list',
    summary: 'list deleted files and folders that can be restored',
    args: [],
    flags: [JSON_SWITCH, TIMEOUT, ACCOUNT],
  },
  {
    name: 'trash restore',
    summary: 'restore a file or folder from the trash',
    args: [argument('item', 'its name, or its id from cfs trash list', null)],
    flags: [
      {
        flag: '--to',
        placeholder: '<path>',
        help: 'where to in the mount: a folder, or a folder and a new name; default: the top folder',
        completion: 'path',
      },
      TIMEOUT,
      ACCOUNT,
    ],
  },
  {
    name: 'trash empty',
    summary: 'permanently delete everything in the trash',
    args: [],
    flags: [toggle('--yes', 'do not ask for confirmation'), TIMEOUT, ACCOUNT],
  },
  {
    name: 'share link',
    summary: 'create and print a public link to a file; anyone with the link can read the file',
    args: [argument('file', 'a file in the mount')],
    flags: [toggle('--off', 'remove the link'), TIMEOUT],
  },
  {
    name: 'share list',
    summary: 'list the files that have a public link, with their links and their paths in the mount',
    args: [],
    flags: [JSON_SWITCH, TIMEOUT, ACCOUNT],
  },
  {
    name: 'sync',
    summary: 'push the changes of all closed files immediately',
    args: [optional('path', 'a file or folder in the mount; default: everything')],
    flags: [
      toggle('--wait', 'wait until the changes reach the service; reports how many files are still open'),
      duration('--timeout', 'stop waiting after this long'),
      ACCOUNT,
    ],
  },
  {
    name: 'pause',
    summary: 'stop pushing changes and fetching pinned files until cfs resume, also over a restart',
    args: [],
    flags: [duration('--for', 'end the pause automatically after this long'), ACCOUNT],
  },
  { name: 'resume', summary: 'end the pause and push the waiting changes', args: [], flags: [ACCOUNT] },
  {
    name: 'limit',
    summary: 'show or change the rate limits of a running mount, until it ends',
    args: [],
    flags: [
      { flag: '--up', placeholder: '<rate>', help: 'bytes sent per second, such as 2MiB, or off' },
      { flag: '--down', placeholder: '<rate>', help: 'bytes fetched per second, such as 2MiB, or off' },
      ACCOUNT,
    ],
  },
  {
    name: 'refresh',
    summary: 'fetch the current state from the service; returns when the mount shows it',
    args: [optional('path', 'a folder in the mount; default: every folder in use')],
    flags: [toggle('--accept', 'also carry out the removals that cfs status shows as held back'), TIMEOUT, ACCOUNT],
  },
  {
    name: 'pin',
    summary: 'keep a file, or the present and future contents of a folder, fully on this machine',
    args: [argument('path', 'a file or folder in the mount')],
    flags: [toggle('--once', 'only fetch everything now; later the cache may remove it again')],
  },
  {
    name: 'evict',
    summary: 'remove the local copies of a file or folder; refuses what exists on this machine only',
    args: [argument('path', 'a file or folder in the mount')],
    flags: [TIMEOUT],
  },
  {
    name: 'unpin',
    summary: 'remove the pin; local copies stay until the cache needs the space',
    args: [argument('path', 'a file or folder in the mount')],
    flags: [],
  },
  {
    name: 'retry',
    summary: 'retry parked changes',
    args: [optional('path', 'a file or folder in the mount; default: everything')],
    flags: [ACCOUNT],
  },
  {
    name: 'discard',
    summary: 'drop pending and parked local changes and return to the state of the service',
    args: [argument('path', 'a file in the mount, or a folder with its contents, including deletions in it')],
    flags: [toggle('--yes', 'drop the changes; without it, only list what would be lost'), ACCOUNT],
  },
  {
    name: 'conflicts',
    summary: 'list conflicted copies with the file of each, and whose bytes they hold',
    args: [],
    flags: [JSON_SWITCH, ACCOUNT],
  },
  {
    name: 'conflicts diff',
    summary: 'compare a file with its conflicted copy',
    args: [argument('file', 'a conflicted copy, or the file that it is a copy of')],
    flags: [
      { flag: '--tool', placeholder: '<command>', help: 'the comparison command; default: `diff -u` (CFS_DIFF)' },
    ],
  },
  {
    name: 'conflicts keep',
    summary: 'end a conflict: keep one of the two files, or both under names of their own',
    args: [
      { ...argument('side', CONFLICT_SIDES_HELP, null), choices: CONFLICT_CHOICES },
      argument('file', 'a conflicted copy, or the file that it is a copy of'),
    ],
    flags: [],
  },
  {
    name: 'web',
    summary: 'serve a page that shows and manages all accounts, on this machine and for this user only',
    args: [optional('path', 'a file or folder in the mount: the page begins there')],
    flags: [
      toggle('--open', 'open the page in the browser ($BROWSER, or the default of the desktop)'),
      { flag: '--port', placeholder: '<number>', help: 'the port on 127.0.0.1; default: any free one' },
      {
        flag: '--host',
        placeholder: '<name>',
        isRepeated: true,
        help: 'also answer under this NAME:PORT, for a forwarded port (may be repeated)',
      },
    ],
  },
  {
    name: 'umount',
    summary: 'push pending changes, then unmount',
    args: [optional('directory', 'the mount point; required if several mounts are running', 'directory')],
    flags: [
      toggle('--now', 'do not push pending changes; they are kept and pushed after the next mount'),
      duration('--timeout', 'push pending changes for at most this long'),
      ACCOUNT,
    ],
  },
  {
    name: 'doctor',
    summary: 'check everything that a mount needs and suggest a fix for each problem',
    args: [],
    flags: [
      toggle('--store', 'verify all data of the local store, and nothing else; the account must not be mounted'),
      toggle('--json', 'print every check as JSON'),
      { ...ACCOUNT, help: 'the account to check; default: all signed-in accounts' },
    ],
  },
  {
    name: 'desktop install',
    summary: 'let file managers show thumbnails of the pictures in a mount without reading the files',
    args: [],
    flags: [],
  },
  { name: 'desktop uninstall', summary: 'remove what cfs desktop install made', args: [], flags: [] },
  {
    name: 'service install',
    summary: 'mount now and at each login to this machine, by a systemd user unit',
    args: [argument('directory', 'the mount point; it must exist', 'directory')],
    flags: [ACCOUNT],
    mountOptions: true,
  },
  {
    name: 'service remove',
    summary: 'unmount and remove the systemd unit',
    args: [optional('directory', 'the mount point; required if several units are installed', 'directory')],
    flags: [],
  },
  {
    name: 'export',
    summary: 'copy unpushed data (pending and parked) to a directory; works without the service or a mount',
    args: [argument('directory', 'the destination; created if missing, otherwise it must be empty', 'directory')],
    flags: [ACCOUNT],
  },
  {
    name: 'config show',
    summary: 'show the effective mount options and the source of each value',
    args: [],
    flags: [JSON_SWITCH],
    mountOptions: true,
  },
  { name: 'metrics', summary: 'print the counters of running mounts in Prometheus format', args: [], flags: [ACCOUNT] },
  {
    name: 'log-level',
    summary: 'set the log level of a running mount, or print it',
    args: [{ ...optional('level', 'the new level, in effect until the mount ends', null), choices: LOG_LEVELS }],
    flags: [ACCOUNT],
  },
  {
    name: 'completion',
    summary: 'print the completion script for a shell: source <(cfs completion bash)',
    args: [{ ...argument('shell', 'bash, zsh or fish', null), choices: ['bash', 'zsh', 'fish'] }],
    flags: [],
  },
  {
    name: 'demo',
    summary: 'mount a demo account of an embedded server in the foreground (npm start)',
    args: [optional('directory', 'the mount point; created if missing (default: ~/Cloud)', 'directory')],
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
  summary: 'mount your cloud folder as an ordinary directory that also works offline',
  // mount(8) and fstab(5) pass a source first; it is optional.
  usage: '[options] [source] <directory>',
  args: [
    argument(
      'directory',
      'the mount point; it must exist and be empty (in the two-word form: the account)',
      'directory',
    ),
    optional('target', 'the mount point in the two-word form, which mount(8) and fstab use', 'directory'),
  ],
  flags: [
    { ...ACCOUNT, help: 'the account; required if several are signed in (cfs accounts lists them)' },
    {
      flag: '-o',
      placeholder: '<options>',
      isRepeated: true,
      help: 'mount options as in mount(8): ro,noatime,uid=1000,… (may be repeated)',
    },
    {
      flag: '--foreground',
      short: '-f',
      placeholder: null,
      help: 'stay in the foreground and print one line per event',
    },
  ],
  mountOptions: true,
};
