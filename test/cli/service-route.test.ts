import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { UsageError } from '../../src/base/errors.ts';
import { freePort } from '../../src/base/free-port.ts';
import { silentLogger } from '../../src/base/log.ts';
import { signIn } from '../../src/cli/commands/login.ts';
import { installService } from '../../src/cli/commands/service.ts';
import { givenHere } from '../../src/cli/option-flags.ts';
import { loadOptions } from '../../src/config/load.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { type Account, accountFileOf, readAccountFile, writeAccountFile } from '../../src/mount/account-file.ts';
import { outageReason } from '../../src/mount/outage-reason.ts';
import { DIRECT_ROUTE, routeTo } from '../../src/mount/service-route.ts';
import { systemCertificates } from '../../src/remote/certificates.ts';
import { Transport, type TransportOptions } from '../../src/remote/http/transport.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { Connectivity } from '../../src/transfer/connectivity.ts';
import { Authority } from './doctor-ground.ts';

/** How the service is reached: one answer for every command, the mount, and the unit that starts it. */

const ORIGIN = 'https://api.example.com';
const PROXY = 'http://proxy.example:3128';
const ACCOUNT: Account = {
  origin: ORIGIN,
  userId: '1',
  username: 'ann@example.com',
  application: '/sc/1/1',
  accessKeyId: 'AK',
  privateAccessKey: 'PK',
  refreshToken: `${ORIGIN}/app-authorization/1`,
};

let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'cfs-route-'));
});

afterEach(() => rmSync(home, { recursive: true, force: true }));

function optionsOf(env: Record<string, string> = {}, flags = {}) {
  return loadOptions({ flags, env, file: null });
}

function proxyOf(env: Record<string, string>, known: Account | null = null, origin = ORIGIN) {
  return routeTo(origin, { env, options: optionsOf(env).options, known }).proxy;
}

describe('the proxy', () => {
  test('the proxy comes from the option, otherwise from the environment', () => {
    const HTTPS_PROXY = 'other.example:1';

    expect(proxyOf({ HTTPS_PROXY })).toMatchObject({ address: 'http://other.example:1', source: 'HTTPS_PROXY' });
    expect(proxyOf({ HTTPS_PROXY, CFS_PROXY: 'proxy.example:3128' })).toMatchObject({
      address: PROXY,
      source: '--proxy',
    });
    expect(proxyOf({ HTTPS_PROXY, CFS_PROXY: 'none' })).toBeNull();
    expect(proxyOf({})).toBeNull();
  });

  test('a loopback address uses no proxy', () => {
    expect(proxyOf({ HTTP_PROXY: PROXY }, null, 'http://127.0.0.1:8080')).toBeNull();
  });

  test('gets its user name and password from the environment, otherwise from the account, if they are for its address', () => {
    const kept = { ...ACCOUNT, proxy: { address: PROXY, username: 'ann', password: 'kept' } };

    expect(proxyOf({ CFS_PROXY: PROXY }, kept)?.credentials).toMatchObject({ username: 'ann', password: 'kept' });
    expect(proxyOf({ CFS_PROXY: PROXY, HTTPS_PROXY: 'http://bob:new@proxy.example:3128' }, kept)?.credentials).toEqual({
      username: 'bob',
      password: 'new',
    });
    expect(proxyOf({ CFS_PROXY: 'http://other.example:1' }, kept)?.credentials).toBeNull();
  });

  test('has no password in an option, which a command line and a unit would show', () => {
    expect(() => optionsOf({ CFS_PROXY: 'http://ann:secret@proxy.example:3128' })).toThrow(
      /^CFS_PROXY: must not contain a user name or password/,
    );
    expect(() => optionsOf({ CFS_PROXY: 'not a proxy' })).toThrow(/^CFS_PROXY: not the address of a proxy/);
  });
});

describe('the trusted authorities', () => {
  const certificates = (env: Record<string, string>) =>
    routeTo(ORIGIN, { env, options: optionsOf().options, known: null }).certificates();
  const pem = (name: string): string => {
    writeFileSync(join(home, name), `-----BEGIN CERTIFICATE-----\n${name}\n`);
    return join(home, name);
  };

  test('the trusted authorities are those of SSL_CERT_FILE or of the system, plus those of NODE_EXTRA_CA_CERTS', () => {
    const [one, extra] = [pem('one'), pem('extra')];

    expect(certificates({ SSL_CERT_FILE: one })).toBe(readFileSync(one, 'utf8'));
    expect(certificates({ SSL_CERT_FILE: one, NODE_EXTRA_CA_CERTS: extra })).toContain('\nextra\n');
    expect(certificates({})).toBe(systemCertificates());
  });

  test.each(['SSL_CERT_FILE', 'NODE_EXTRA_CA_CERTS'])(
    'a missing file of %s is an error that names the variable',
    (variable) => {
      const one = { SSL_CERT_FILE: pem('one') };
      writeFileSync(join(home, 'text'), 'no certificate\n');

      expect(() => certificates({ ...one, [variable]: join(home, 'none') })).toThrow(UsageError);
      expect(() => certificates({ ...one, [variable]: join(home, 'none') })).toThrow(`${variable} names`);
      expect(() => certificates({ ...one, [variable]: join(home, 'text') })).toThrow(/which holds no certificates/);
    },
  );
});

describe('cfs service install', () => {
  async function install(
    env: Record<string, string>,
    flags = {},
  ): Promise<{ unit: string; account: Account; said: string }> {
    const paths = pathsOf({ HOME: home });
    const file = accountFileOf(paths, ACCOUNT);
    writeAccountFile(file, ACCOUNT);
    mkdirSync(join(home, 'Cloud'));
    writeFileSync(join(home, 'systemctl'), '#!/bin/sh\nexit 0\n', { mode: 0o755 });
    let said = '';
    const print = (text: string): void => {
      said += text;
    };
    const loaded = optionsOf(env, flags);
    const deps = { paths, env: { ...env, PATH: `${home}:${process.env.PATH}` }, print };
    await installService(
      { ...deps, options: loaded.options, given: givenHere(loaded) },
      { directory: join(home, 'Cloud'), account: null },
    );
    const units = join(home, '.config/systemd/user');
    const unit = readFileSync(join(units, readdirSync(units)[0] as string), 'utf8');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    return { unit, account: readAccountFile(file), said };
  }

  test('cfs service install keeps the proxy of its environment in the unit, and the password in the account', async () => {
    const { unit, account, said } = await install({ HTTPS_PROXY: 'http://ann:secret@proxy.example:3128' });

    expect(unit).toMatch(new RegExp(`^ExecStart=.* --proxy=${PROXY} -- `, 'm'));
    expect(unit).not.toContain('secret');
    expect(account.proxy).toEqual({ address: PROXY, username: 'ann', password: 'secret' });
    expect(said).toContain(`uses the proxy ${PROXY}, set by HTTPS_PROXY\n`);
    expect(said).not.toContain('secret');
    // What the unit starts has the option and the account, and no environment.
    expect(proxyOf({ CFS_PROXY: PROXY }, account)?.credentials).toMatchObject({ username: 'ann', password: 'secret' });
  });

  test('keeps the other options of its environment too, and names no proxy where there is none', async () => {
    const { unit, account } = await install({ CFS_SETTLE: '1s', CFS_READ_ONLY: '1', CFS_INSECURE: '0' });

    expect(unit).toMatch(/ --settle=1s --read-only -- /);
    expect(unit).not.toContain('--proxy');
    expect(account.proxy).toBeUndefined();
  });

  test('writes an exemption as no proxy', async () => {
    const { unit } = await install({ HTTPS_PROXY: PROXY, NO_PROXY: 'example.com' });

    expect(unit).not.toContain('--proxy');
  });
});

/** By 0.0.0.0 this machine is reached as another one would be: through the proxy. */
test('cfs login keeps the user name and password of the proxy with the account, and the next login keeps them there', async () => {
  const port = await freePort('0.0.0.0');
  const origin = `http://0.0.0.0:${port}`;
  const service = await ReferenceServer.open({
    dataDirectory: join(home, 'server'),
    publicOrigin: origin,
    listen: { port },
  });
  await service.administration.addUser('b@example.com', 'a password', { scryptCost: 2 ** 10 });
  const application = await service.administration.addApplication('tests');
  const keys = await service.administration.addKeyPair('b@example.com');
  const forwarder: Server = createServer((request, response) => {
    const onward = httpRequest(request.url ?? '', { method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 0, answer.headers);
      answer.pipe(response);
    });
    request.pipe(onward);
  });
  await new Promise<void>((resolve) => forwarder.listen(0, '127.0.0.1', resolve));
  const address = `http://127.0.0.1:${(forwarder.address() as AddressInfo).port}`;
  const inputs = { username: 'b@example.com', password: 'a password', application, ...keys };
  const deps = { paths: pathsOf({ HOME: home }), clock: systemClock, log: silentLogger };
  const credentials = { username: 'ann', password: 'secret' };
  const login = async (proxy: typeof credentials | null): Promise<Account> => {
    const route = { ...DIRECT_ROUTE, insecure: true, proxy: { address, credentials: proxy, source: 'http_proxy' } };
    const { account } = await signIn(deps, { origin, inputs, route });
    return readAccountFile(accountFileOf(deps.paths, account));
  };
  try {
    expect((await login(credentials)).proxy).toEqual({ address, ...credentials });
    expect((await login(null)).proxy).toEqual({ address, ...credentials });
  } finally {
    forwarder.closeAllConnections();
    await new Promise((resolve) => forwarder.close(resolve));
    await service.close();
  }
});

describe('cfs status says why the service is not reached:', () => {
  let directory: string;
  let authority: Authority;

  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'cfs-outage-'));
    authority = new Authority(join(directory, 'authority'));
  });

  afterAll(() => rmSync(directory, { recursive: true }));

  /** As of a mount whose last request failed. */
  async function reasonOf(options: Partial<TransportOptions> & { readonly baseUrl: string }): Promise<string> {
    const connectivity = new Connectivity({ clock: systemClock, log: silentLogger, probe: async () => {} });
    const transport = new Transport({
      certificates: () => readFileSync(authority.certificateFile, 'utf8'),
      userAgent: 'test',
      clock: systemClock,
      ...options,
    });
    const url = `${transport.origin}/user`;
    const ask = () => transport.exchange({ method: 'GET', url, headers: {}, body: null, signal: undefined });
    await expect(connectivity.watched(ask)).rejects.toThrow();
    await transport.close();
    return outageReason(connectivity.state.failure, { proxy: null });
  }

  test.each([
    ["the service's certificate has expired", ['20200101000000Z', '20200201000000Z'] as const, undefined],
    ["the service's certificate is not valid yet", ['20480101000000Z', '20490101000000Z'] as const, undefined],
    ["the service's certificate is for another host name", undefined, 'DNS:other.example.com'],
  ])('%s', async (reason, life, name) => {
    const server = await authority.serve(life, name);

    expect(await reasonOf({ baseUrl: server.origin })).toBe(`${reason}: run cfs doctor`);
    server.close();
  });

  test('cfs status names an untrusted certificate authority', async () => {
    const server = await authority.serve();

    const reason = await reasonOf({ baseUrl: server.origin, certificates: systemCertificates });

    expect(reason).toContain('comes from an authority that this system does not trust');
    server.close();
  });

  test('cfs status names the address of an unreachable proxy', async () => {
    const proxy = { address: 'http://127.0.0.1:9', credentials: null, source: 'HTTPS_PROXY' };

    expect(await reasonOf({ baseUrl: ORIGIN, proxy })).toMatch(
      /^the proxy http:\/\/127\.0\.0\.1:9 \(HTTPS_PROXY\) cannot be reached: /,
    );
  });

  test('a silence, when nothing more is known', async () => {
    expect(await reasonOf({ baseUrl: 'http://127.0.0.1:9' })).toBe('the service does not answer');
    const proxy = { address: PROXY, credentials: null, source: '--proxy' };
    expect(outageReason(null, { proxy })).toBe(`the service does not answer through the proxy ${PROXY}`);
  });
});
