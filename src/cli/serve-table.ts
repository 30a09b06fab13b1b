import { LOG_LEVELS } from '../base/log-level.ts';
import { argument, type CommandRow, duration, type FlagRow, toggle } from './command-row.ts';

const DATA: FlagRow = {
  flag: '--data',
  placeholder: '<directory>',
  help: 'where everything is kept',
  completion: 'directory',
};

/** `cfs serve` and its administration: part of the command table. */
export const SERVE_COMMANDS = [
  {
    name: 'serve',
    summary: 'run the service: for trying out, for tests, and for your own use',
    args: [],
    flags: [
      DATA,
      {
        flag: '--listen',
        placeholder: '<host:port>',
        default: '127.0.0.1',
        help: 'where to listen; without a port: the one of the last start',
      },
      { flag: '--tls-cert', placeholder: '<file>', help: 'certificate chain, PEM', completion: 'path' },
      { flag: '--tls-key', placeholder: '<file>', help: 'private key, PEM', completion: 'path' },
      toggle('--insecure', 'plain HTTP beyond this machine: only behind something that speaks TLS'),
      {
        flag: '--public-origin',
        placeholder: '<url>',
        help: 'what the URLs in answers begin with, if not where it listens',
      },
      { ...duration('--token-life', 'life of an access token'), default: '1h' },
      {
        flag: '--versions-kept',
        placeholder: '<n>',
        help: 'complete versions of a file that are kept (default: all)',
      },
      toggle('--unique-names', 'refuse equal names in one folder'),
      toggle('--fold-case', 'refuse names that differ only by case'),
      { flag: '--page-max', placeholder: '<n>', help: 'entries on one page of a listing at most' },
      toggle('--accept-any-keys', 'let any application in: for clients that have their own keys built in'),
      {
        flag: '--fault-file',
        placeholder: '<file>',
        help: 'trouble to order: a JSON array of rules (docs/service.md 11)',
        completion: 'path',
      },
      { ...duration('--latency', 'wait before each answer'), default: '0' },
      { flag: '--bandwidth', placeholder: '<bytes>', help: 'bytes per second of each body' },
      { flag: '--ready-fd', placeholder: '<n>', help: 'write {"origin":…} and a newline there when it listens' },
      {
        flag: '--log-level',
        placeholder: '<level>',
        default: 'info',
        help: 'how much the log says',
        choices: LOG_LEVELS,
      },
      toggle('--check', 'compare the length and SHA-256 of everything that is kept, and end'),
    ],
  },
  {
    name: 'serve user add',
    summary: 'make an account and print what `cfs login` needs; the password from CFS_PASSWORD, or asked for',
    args: [argument('email', 'what the account is called', null)],
    flags: [
      DATA,
      toggle('--password-stdin', 'read the password from standard input'),
      { flag: '--nickname', placeholder: '<name>', help: 'the name that others see' },
      { flag: '--quota', placeholder: '<bytes>', help: 'how much it may store' },
    ],
    isAdministration: true,
  },
  {
    name: 'serve user list',
    summary: 'all accounts: id, address, usage, keys',
    args: [],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve user quota',
    summary: 'how much an account may store',
    args: [argument('email', 'which account', null), argument('bytes', 'for instance 20GiB', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve user revoke-tokens',
    summary: 'sign an account out everywhere',
    args: [argument('email', 'which account', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve key add',
    summary: 'make a key pair, at most ten per account',
    args: [argument('email', 'which account', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve key revoke',
    summary: 'make a key pair useless',
    args: [argument('id', 'the access key ID', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve application add',
    summary: 'make an application',
    args: [argument('name', 'what it is called', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve application list',
    summary: 'all applications',
    args: [],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve application disable',
    summary: 'give an application no tokens any more',
    args: [argument('id', 'the application ID', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve application enable',
    summary: 'give it tokens again',
    args: [argument('id', 'the application ID', null)],
    flags: [DATA],
    isAdministration: true,
  },
  {
    name: 'serve share add',
    summary: 'let another account see a folder, named by the end of its URL (5000_5001)',
    args: [
      argument('owner', 'whose folder', null),
      argument('folder', 'the end of its URL', null),
      argument('receiver', 'who may see it', null),
    ],
    flags: [DATA, toggle('--write', 'and change it')],
    isAdministration: true,
  },
  {
    name: 'serve share remove',
    summary: 'take a share back',
    args: [
      argument('owner', 'whose folder', null),
      argument('folder', 'the end of its URL', null),
      argument('receiver', 'who may see it no longer', null),
    ],
    flags: [DATA],
    isAdministration: true,
  },
] as const satisfies readonly CommandRow[];
