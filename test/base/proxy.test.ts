import { describe, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { credentialsInEnvironment, parseProxy, proxyInEnvironment } from '../../src/base/proxy.ts';

const HTTPS = 'https://api.example.com';
const HTTP = 'http://api.example.com:8080';

describe('the address of a proxy', () => {
  test.each([
    ['proxy.example:3128', 'http://proxy.example:3128'],
    ['http://Proxy.Example:3128/', 'http://proxy.example:3128'],
    ['http://proxy.example', 'http://proxy.example:80'],
    ['https://proxy.example', 'https://proxy.example:443'],
    ['socks://proxy.example', 'socks5://proxy.example:1080'],
    ['socks5h://proxy.example:80', 'socks5://proxy.example:80'],
    ['http://[::1]:3128', 'http://[::1]:3128'],
    ['10.0.0.1:8080', 'http://10.0.0.1:8080'],
  ])('%s is %s', (text, address) => {
    expect(parseProxy(text)).toEqual({ address, credentials: null });
  });

  test('user name and password are no part of it', () => {
    expect(parseProxy('http://ann:p%3Aw@proxy.example:3128')).toEqual({
      address: 'http://proxy.example:3128',
      credentials: { username: 'ann', password: 'p:w' },
    });
  });

  test.each([
    'not a proxy',
    'http://',
    'ftp://proxy.example',
    'http://proxy.example/path',
    'http://a:%zz@b',
    'http://a:secret@b:x',
  ])('%s is none, and is not repeated in the message', (text) => {
    expect(() => parseProxy(text)).toThrow(/^not the address of a proxy, such as http:\/\/proxy\.example:3128$/);
  });
});

describe('the variable that counts', () => {
  const all = ['https_proxy', 'HTTPS_PROXY', 'all_proxy', 'ALL_PROXY', 'http_proxy', 'HTTP_PROXY'];

  test.each([
    [HTTPS, all],
    [HTTP, ['http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY']],
  ])('for %s is the first of its list that is not empty', (origin, names) => {
    names.forEach((name, index) => {
      const env = Object.fromEntries(names.map((each, at) => [each, at < index ? '' : `${each}.example:1`]));
      expect(proxyInEnvironment(origin, env)).toEqual({
        address: `http://${name.toLowerCase()}.example:1`,
        credentials: null,
        source: name,
      });
    });
    expect(proxyInEnvironment(origin, {})).toBeNull();
  });

  test('the error names the variable that holds no proxy address', () => {
    const look = () => proxyInEnvironment(HTTPS, { HTTPS_PROXY: 'not a proxy' });

    expect(look).toThrow(UsageError);
    expect(look).toThrow(/^HTTPS_PROXY: not the address of a proxy/);
    expect(proxyInEnvironment(HTTP, { HTTPS_PROXY: 'not a proxy' })).toBeNull();
  });
});

describe('NO_PROXY', () => {
  test.each([
    ['api.example.com', HTTPS, true],
    ['example.com', HTTPS, true],
    ['.example.com', HTTPS, true],
    ['*.example.com', HTTPS, true],
    ['ample.com', HTTPS, false],
    ['other.example, EXAMPLE.com', HTTPS, true],
    ['other.example example.com', HTTPS, true],
    ['*', HTTPS, true],
    ['example.com:443', HTTPS, true],
    ['example.com:8080', HTTPS, false],
    ['example.com:8080', HTTP, true],
    ['10.0.0.0/8', 'https://10.1.2.3', true],
    ['10.0.0.0/8', 'https://11.1.2.3', false],
    ['10.1.2.3', 'https://10.1.2.3', true],
    ['fd00::/8', 'https://[fd00::1]', true],
    ['[fd00::1]:443', 'https://[fd00::1]', true],
    ['10.0.0.0/99', 'https://10.1.2.3', false],
  ])('%s for %s: exempt is %s', (list, origin, isExempt) => {
    const env = { https_proxy: 'proxy.example:3128', http_proxy: 'proxy.example:3128' };

    expect(proxyInEnvironment(origin, { ...env, NO_PROXY: list }) === null).toBe(isExempt);
    expect(proxyInEnvironment(origin, { ...env, no_proxy: '', NO_PROXY: list }) === null).toBe(isExempt);
  });
});

test('user name and password of the environment are those for the same address only', () => {
  const env = { all_proxy: 'not a proxy', HTTPS_PROXY: 'http://ann:secret@proxy.example:3128' };

  expect(credentialsInEnvironment('http://proxy.example:3128', env)).toEqual({ username: 'ann', password: 'secret' });
  expect(credentialsInEnvironment('http://proxy.example:3129', env)).toBeNull();
});
