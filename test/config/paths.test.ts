import { userInfo } from 'node:os';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { accountName, accountPaths, homeDirectory, pathsOf } from '../../src/config/paths.ts';

test('the XDG directories are where everything lies', () => {
  const paths = pathsOf({ HOME: '/home/ann', XDG_CONFIG_HOME: '/c', XDG_STATE_HOME: '/s', XDG_RUNTIME_DIR: '/r' });

  expect(paths.configFile).toBe('/c/cfs/config.toml');
  expect(paths.demoServerDirectory).toBe('/s/cfs/demo-server');
  expect(accountPaths(paths, '17@host')).toMatchObject({
    accountFile: '/s/cfs/accounts/17@host/account.json',
    storeDirectory: '/s/cfs/accounts/17@host/store',
    socketPath: '/r/cfs/17@host/control.sock',
  });
});

test('without them, the places below the home directory that the specification names', () => {
  const paths = pathsOf({ HOME: '/home/ann' });

  expect(paths.configFile).toBe('/home/ann/.config/cfs/config.toml');
  expect(accountPaths(paths, 'a').socketPath).toBe('/home/ann/.local/state/cfs/accounts/a/run/control.sock');
});

test('a relative directory is no directory (the specification says to ignore it)', () => {
  expect(pathsOf({ HOME: '/home/ann', XDG_STATE_HOME: 'here' }).accountsDirectory).toBe(
    '/home/ann/.local/state/cfs/accounts',
  );
});

test.each([undefined, '', 'here'])('with HOME=%j the home directory of the system is used', (HOME) => {
  expect(pathsOf({ HOME }).accountsDirectory).toBe(`${userInfo().homedir}/.local/state/cfs/accounts`);
});

test.each(['', 'here'])(
  'with the home directory %j in the system, nothing is created in the working directory',
  (homedir) => {
    expect(() => homeDirectory({}, () => ({ homedir }))).toThrow(UsageError);
  },
);

test('an account is named so that a person recognises it', () => {
  expect(accountName('https://api.example.com', '17')).toBe('17@api.example.com');
  expect(accountName('http://127.0.0.1:4711', '17')).toBe('17@http+127.0.0.1:4711');
});

test('different accounts never share a directory, and none escapes from it', () => {
  const origin = fc.constantFrom(
    'http://a',
    'https://a',
    'http://a:80',
    'http://a:81',
    'https://a:443',
    'https://a:81',
    'http://b.a',
  );
  const user = fc.string({
    minLength: 1,
    unit: fc.constantFrom('a', '1', '/', '.', '%', '2', 'E', '@', ':', '+', '\u00e9'),
  });
  const same = (a: [string, string], b: [string, string]) =>
    new URL(a[0]).origin === new URL(b[0]).origin && a[1] === b[1];

  fc.assert(
    fc.property(fc.tuple(origin, user), fc.tuple(origin, user), (a, b) => {
      const [first, second] = [accountName(...a), accountName(...b)];
      expect(first === second).toBe(same(a, b));
      expect(first).not.toMatch(/\/|^\.+$/);
    }),
    { numRuns: 1000 },
  );
});
