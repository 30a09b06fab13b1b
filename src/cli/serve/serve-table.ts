import { LOG_LEVELS } from '../../base/log-level.ts';
import { argument, type CommandRow, duration, type FlagRow, toggle } from '../command-row.ts';

const DATA: FlagRow = {
  flag: '--data',
  placeholder: '<directory>',
  help: 'the data directory',
  completion: 'directory',
};

/** `cfs serve` and its administration: part of the command table. */
export const SERVE_COMMANDS = [
  {
    name: 'serve',
    summary: 'run the service: for a trial, for tests, or for your own files',
    args: [],
    flags: [
      DATA,
      {
        flag: '--listen',
        placeholder: '<host:port>',
        default: '127.0.0.1',
        help: 'the address to listen on; default port: that of the last start',
      },
      { flag: '--tls-cert', placeholder: '<file>', help: 'certificate chain (PEM)', completion: 'path' },
      { flag: '--tls-key', placeholder: '<file>', help: 'private key (PEM)', completion: 'path' },
      toggle('--insecure', 'allow plain HTTP from other machines; use it only behind a TLS proxy'),
      {
        flag: '--public-origin',
        placeholder: '<url>',
        help: 'origin of the URLs in responses; default: the listening address',
      },
      { ...duration('--token-life', 'lifetime of an access token'), default: '1h' },
      {
        flag: '--versions-kept',
        placeholder: '<n>',
        help: 'number of complete versions kept per file (default: all)',
      },
      toggle('--unique-names', 'reject duplicate names in one folder'),
      toggle('--fold-case', 'reject names that differ only in case'),
      { flag: '--page-max', placeholder: '<n>', help: 'maximum number of entries on one page of a listing' },
      toggle('--accept-any-keys', 'accept any application, for clients with built-in keys'),
      {
        flag: '--fault-file',
        placeholder: '<file>',
        help: 'fault injection: a JSON array of rules (docs/service.md 11)',
        completion: 'path',
      },
      { ...duration('--latency', 'delay before each response'), default: '0' },
      { flag: '--bandwidth', placeholder: '<bytes>', help: 'bandwidth of each body in bytes per second' },
      {
        flag: '--ready-fd',
        placeholder: '<n>',
        help: 'when listening, write {"origin":…} and a newline to this file descriptor',
      },
      {
        flag: '--log-level',
        placeholder: '<level>',
        default: 'info',
        help: 'the log level',
        choices: LOG_LEVELS,
      },
      toggle('--check', 'verify the length and SHA-256 of all stored data, then exit'),
    ],
  },
  {
    name: 'serve user add',
    summary: 'create an account and print its `cfs login` values; asks for the password unless CFS_PASSWORD is set',
    args: [argument('email', 'the email address of the account', null)],
    flags: [
      DATA,
      toggle('--password-stdin', 'read the password from standard input'),
      { flag: '--nickname', placeholder: '<name>', help: 'the display name' },
      { flag: '--quota', placeholder: '<bytes>', help: 'storage quota of the account' },
    ],
    isAdministration: true,
  },
  {
    name: 'serve user list',
    summary: 'list accounts: id, address, usage and keys',
    args: [],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve user quota',
    summary: 'set the storage quota of an account',
    args: [argument('email', 'the account', null), argument('bytes', 'the quota, such as 20GiB', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve user revoke-tokens',
    summary: 'sign an account out everywhere',
    args: [argument('email', 'the account', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve key add',
    summary: 'create a key pair (at most ten per account)',
    args: [argument('email', 'the account', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve key revoke',
    summary: 'revoke a key pair',
    args: [argument('id', 'the access key ID', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve application add',
    summary: 'register an application',
    args: [argument('name', 'its name', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve application list',
    summary: 'list applications',
    args: [],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve application disable',
    summary: 'stop issuing tokens to an application',
    args: [argument('id', 'the application ID', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve application enable',
    summary: 'issue tokens to an application again',
    args: [argument('id', 'the application ID', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve share add',
    summary: 'share a folder with another account; the folder is the last part of its URL (5000_5001)',
    args: [
      argument('owner', 'the account that owns the folder', null),
      argument('folder', 'the last part of its URL', null),
      argument('receiver', 'the account that gets access', null),
    ],
    flags: [DATA, toggle('--write', 'allow changes too')],
    isAdministration: true,
  },
  {
    name: 'serve share remove',
    summary: 'remove a share',
    args: [
      argument('owner', 'the account that owns the folder', null),
      argument('folder', 'the last part of its URL', null),
      argument('receiver', 'the account that loses access', null),
    ],
    flags: [DATA],
    isAdministration: true,
  },
] as const satisfies readonly CommandRow[];
