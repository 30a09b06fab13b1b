import { LOG_LEVELS } from '../../base/log-level.ts';
import { argument, type CommandRow, duration, type FlagRow, toggle } from '../command-row.ts';

const DATA: FlagRow = {
  flag: '--data',
  placeholder: '<directory>',
  help: 'the data directory',
  completion: 'directory',
};

const DATABASE: FlagRow = {
  flag: '--database',
  placeholder: '<url>',
  help: 'the database of several servers: postgres://user@host/name; password: PGPASSWORD or PGPASSFILE',
};

/** `cfs serve` and its administration: part of the command table. */
export const SERVE_COMMANDS = [
  {
    name: 'serve',
    summary: 'run the service: for a trial, for tests, or for your own files',
    args: [],
    flags: [
      DATA,
      DATABASE,
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
      {
        flag: '--page-max',
        placeholder: '<n>',
        default: '1000',
        help: 'maximum number of entries on one page of a listing',
      },
      {
        flag: '--storage-factor',
        placeholder: '<n>',
        default: '10',
        help: 'everything an account stores, with old versions and unfinished uploads, as a multiple of its quota',
      },
      { flag: '--entries-max', placeholder: '<n>', default: '1000000', help: 'files and folders of an account' },
      { flag: '--unfinished-max', placeholder: '<n>', default: '1000', help: 'unfinished uploads of an account' },
      { flag: '--connections-max', placeholder: '<n>', default: '1000', help: 'open connections' },
      {
        flag: '--trusted-proxy',
        placeholder: '<addresses>',
        help: 'addresses or networks of proxies whose X-Forwarded-For is believed, separated by commas',
      },
      {
        flag: '--admin-listen',
        placeholder: '<host:port>',
        help: 'answer /healthz and /metrics (Prometheus) on this address; a port alone means loopback',
      },
      {
        flag: '--objects',
        placeholder: '<url>',
        help: 'move the data of files to this bucket: s3://bucket?endpoint=https://host (docs/hosting.md); with --database also file:///directory',
      },
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
      DATABASE,
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
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
  {
    name: 'serve user quota',
    summary: 'set the storage quota of an account',
    args: [argument('email', 'the account', null), argument('bytes', 'the quota, such as 20GiB', null)],
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
  {
    name: 'serve user password',
    summary: 'change a password and sign the account out everywhere; asks for it unless CFS_PASSWORD is set',
    args: [argument('email', 'the account', null)],
    flags: [DATA, DATABASE, toggle('--password-stdin', 'read the password from standard input')],
    isAdministration: true,
  },
  {
    name: 'serve user remove',
    summary: 'remove an account with all its files and versions',
    args: [argument('email', 'the account', null)],
    flags: [DATA, DATABASE, toggle('--yes', 'confirm that its data are deleted permanently')],
    isAdministration: true,
  },
  {
    name: 'serve user revoke-tokens',
    summary: 'sign an account out everywhere',
    args: [argument('email', 'the account', null)],
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
  {
    name: 'serve key add',
    summary: 'create a key pair (at most ten per account)',
    args: [argument('email', 'the account', null)],
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
  {
    name: 'serve key revoke',
    summary: 'revoke a key pair',
    args: [argument('id', 'the access key ID', null)],
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
  {
    name: 'serve application add',
    summary: 'register an application',
    args: [argument('name', 'its name', null)],
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
  {
    name: 'serve application list',
    summary: 'list applications',
    args: [],
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
  {
    name: 'serve application disable',
    summary: 'stop issuing tokens to an application',
    args: [argument('id', 'the application ID', null)],
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
  {
    name: 'serve application enable',
    summary: 'issue tokens to an application again',
    args: [argument('id', 'the application ID', null)],
    flags: [DATA, DATABASE],
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
    flags: [DATA, DATABASE, toggle('--write', 'allow changes too')],
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
    flags: [DATA, DATABASE],
    isAdministration: true,
  },
] as const satisfies readonly CommandRow[];
