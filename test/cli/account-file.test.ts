import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Paths, pathsOf } from '../../src/config/paths.ts';
import {
  type Account,
  accountFileOf,
  accountNames,
  chooseAccount,
  readAccountFile,
  writeAccountFile,
} from '../../src/mount/account-file.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { PROJECT } from '../imports.ts';

const ACCOUNT: Account = {
  origin: 'http://127.0.0.1:4711',
  userId: '17',
  username: 'ann@example.com',
  application: '/sc/1/2',
  accessKeyId: 'key',
  privateAccessKey: 'private',
  refreshToken: 'http://127.0.0.1:4711/app-authorization/token',
};

let directory: string;
let paths: Paths;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-account-'));
  paths = pathsOf({ HOME: directory, XDG_STATE_HOME: directory });
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

function signIn(changes: Partial<Account> = {}): string {
  const account = { ...ACCOUNT, ...changes };
  const file = accountFileOf(paths, account);
  writeAccountFile(file, account);
  return file;
}

test('an account is read back as it was written', () => {
  expect(readAccountFile(signIn())).toEqual(ACCOUNT);
});

test('only its owner can read the account file, with any umask and over any earlier file', () => {
  const file = accountFileOf(paths, ACCOUNT);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, '{}');
  chmodSync(file, 0o644);

  signIn();

  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readdirSync(dirname(file))).toEqual(['account.json']);
});

test('the password is not in it, even when it is handed over', () => {
  const file = signIn({ password: 'correct horse' } as Partial<Account>);

  expect(readFileSync(file, 'utf8')).not.toContain('correct horse');
});

test('a link that lies where the new file is written is not written through', () => {
  const victim = join(directory, 'victim');
  writeFileSync(victim, 'mine');
  const file = accountFileOf(paths, ACCOUNT);
  mkdirSync(dirname(file), { recursive: true });
  symlinkSync(victim, `${file}.${process.pid}.new`);

  signIn();

  expect(readFileSync(victim, 'utf8')).toBe('mine');
});

test.each(['', '{', '[]', '{"origin":"http://127.0.0.1"}'])('a damaged file (%j) is one sentence', (text) => {
  const file = signIn();
  writeFileSync(file, text);

  expect(() => readAccountFile(file)).toThrow(
    expect.objectContaining({ message: expect.stringContaining('cfs login'), exitCode: exitCode('signIn') }),
  );
  expect(accountNames(paths)).toEqual([]);
});

test('the only account is the one that is meant', () => {
  signIn();

  expect(chooseAccount(paths, null)).toEqual({ name: '17@http+127.0.0.1:4711', account: ACCOUNT });
});

test('without an account, the command to get one is named', () => {
  expect(() => chooseAccount(paths, null)).toThrow(
    expect.objectContaining({
      message: 'not signed in: run cfs login URL, or try it without an account: cfs demo DIR',
      exitCode: exitCode('signIn'),
    }),
  );
});

test('one of several accounts must be chosen, by its name or by the user name', () => {
  signIn();
  signIn({ userId: '18', username: 'ben@example.com' });

  expect(() => chooseAccount(paths, null)).toThrow(
    '--account: ann@example.com (17@http+127.0.0.1:4711), ben@example.com (18@http+127.0.0.1:4711)',
  );
  expect(chooseAccount(paths, 'ben@example.com').account.userId).toBe('18');
  expect(chooseAccount(paths, '17@http+127.0.0.1:4711').account.userId).toBe('17');
  expect(() => chooseAccount(paths, 'cid@example.com')).toThrow('no account cid@example.com');
});

test('a write that a full disk cuts leaves the earlier account file', () => {
  const file = signIn();
  // setrlimit(2): a write over the limit is cut short there, the next one fails, as on a disk that fills up.
  const script = `
    import(process.argv[1]).then(({ writeAccountFile }) => {
      writeAccountFile(process.argv[2], { ...JSON.parse(process.argv[3]), refreshToken: 'x'.repeat(5000) });
    }).catch((error) => {
      console.log(error.cause?.code ?? error.code ?? error.message);
    });`;
  const words = [join(PROJECT, 'dist/mount/account-file.js'), file, JSON.stringify(ACCOUNT)];
  const { stdout, stderr } = spawnSync(
    'sh',
    ['-c', 'ulimit -f 4; exec "$@"', 'sh', process.execPath, '-e', script, ...words],
    { encoding: 'utf8', timeout: 60_000 },
  );

  expect(stdout + stderr).toContain('EFBIG');
  expect(readAccountFile(file)).toEqual(ACCOUNT);
  expect(readdirSync(dirname(file))).toEqual(['account.json']);
});
