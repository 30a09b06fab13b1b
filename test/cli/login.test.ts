import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { freePort } from '../../src/base/free-port.ts';
import { silentLogger } from '../../src/base/log.ts';
import { loginCommand, signIn } from '../../src/cli/commands/login.ts';
import { withService } from '../../src/cli/service-access.ts';
import { ServiceWait } from '../../src/cli/service-wait.ts';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import { readAccountFile } from '../../src/mount/account-file.ts';
import { DIRECT_ROUTE } from '../../src/mount/service-route.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { OtherServer } from '../harness/other-server.ts';

/** Signing in to a service whose certificate comes from an authority of one's own. */

let directory: string;
let certificateFile: string;
let server: ReferenceServer;
let inputs: Record<string, string>;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-login-'));
  certificateFile = join(directory, 'cert.pem');
  const key = join(directory, 'key.pem');
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'];
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  const args = ['req', '-x509', ...kind, '-keyout', key, '-out', certificateFile, ...subject];
  execFileSync('openssl', args, { stdio: 'ignore' });
  const tls = { certificate: readFileSync(certificateFile, 'utf8'), key: readFileSync(key, 'utf8') };
  server = await ReferenceServer.open({ dataDirectory: join(directory, 'server'), tls });
  const { administration } = server;
  await administration.addUser('a@example.com', 'a password', { scryptCost: 2 ** 10 });
  const { accessKeyId, privateAccessKey } = await administration.addKeyPair('a@example.com');
  inputs = {
    CFS_USERNAME: 'a@example.com',
    CFS_PASSWORD: 'a password',
    CFS_APPLICATION: await administration.addApplication('tests'),
    CFS_ACCESS_KEY_ID: accessKeyId,
    CFS_PRIVATE_ACCESS_KEY: privateAccessKey,
  };
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** As long as each request may take. */
function patient(): ServiceWait {
  return new ServiceWait({ clock: systemClock, warn: () => {} }, null);
}

async function login(env: Record<string, string>): Promise<string> {
  let printed = '';
  const deps = {
    paths: pathsOf({ XDG_CONFIG_HOME: join(directory, 'config'), XDG_STATE_HOME: join(directory, 'state') }),
    clock: systemClock,
    env: { ...inputs, ...env },
    prompt: null,
    wait: patient(),
    print: (text: string) => {
      printed += text;
    },
  };
  await loginCommand(deps, { url: server.origin, insecure: false });
  return printed;
}

test('the authority that SSL_CERT_FILE names is believed', async () => {
  expect(await login({ SSL_CERT_FILE: certificateFile })).toContain('signed in');
});

test('secrets may be in files, as container engines mount them', async () => {
  const secrets = ['CFS_PASSWORD', 'CFS_PRIVATE_ACCESS_KEY'].map((name) => {
    const path = join(directory, name);
    writeFileSync(path, `${inputs[name]}\n`);
    return { [name]: '', [`${name}_FILE`]: path };
  });

  expect(await login(Object.assign({ SSL_CERT_FILE: certificateFile }, ...secrets))).toContain('signed in');
});

test('one that nobody named is not, and the reason is said', async () => {
  await expect(login({})).rejects.toThrow(/cannot be reached: .*no trusted connection/);
});

test('a file that cannot be read is said to be so', async () => {
  const missing = join(directory, 'missing.pem');

  await expect(login({ SSL_CERT_FILE: missing })).rejects.toThrow(
    `SSL_CERT_FILE names ${missing}, which cannot be read`,
  );
});

test('a user whose id is not a number is signed in, with a directory of its own', async () => {
  const other = await OtherServer.start({ idOf: (kind, number) => `${kind}-${number}.7f3a~%2F` });
  const paths = pathsOf({ HOME: join(directory, 'other') });
  const given = { username: 'b@example.com', password: 'a password' };
  const keys = { application: '/sc/1/1', accessKeyId: 'AK', privateAccessKey: 'PK' };
  try {
    const { name, account } = await signIn(
      { paths, clock: systemClock, log: silentLogger },
      { origin: other.origin, inputs: { ...given, ...keys }, route: DIRECT_ROUTE },
    );
    expect(account.userId).toBe('user-1.7f3a~%2F');
    expect(readAccountFile(accountPaths(paths, name).accountFile)).toEqual(account);
  } finally {
    await other.close();
  }
});

/** By 0.0.0.0 this machine is reached as another one would be: nothing says that the line does not leave it. */
test('a service in the clear is spoken with where the person said so at the sign-in, and never asked about again', async () => {
  const ground = join(directory, 'clear');
  const port = await freePort();
  const publicOrigin = `http://0.0.0.0:${port}`;
  const clear = await ReferenceServer.open({ dataDirectory: ground, publicOrigin, listen: { port } });
  try {
    await clear.administration.addUser('b@example.com', 'a password', { scryptCost: 2 ** 10 });
    const application = await clear.administration.addApplication('tests');
    const keys = await clear.administration.addKeyPair('b@example.com');
    const paths = pathsOf({ HOME: ground });
    const as = { username: 'b@example.com', password: 'a password', application, ...keys };
    const how = { origin: publicOrigin, inputs: as };
    const deps = { paths, clock: systemClock, log: silentLogger };

    await expect(signIn(deps, { ...how, route: DIRECT_ROUTE })).rejects.toThrow(/in the clear/);
    const { name } = await signIn(deps, { ...how, route: { ...DIRECT_ROUTE, insecure: true } });

    expect(readAccountFile(accountPaths(paths, name).accountFile).insecure).toBe(true);
    const user = await withService({ paths, clock: systemClock, env: {}, wait: patient() }, name, (service) =>
      service.user(undefined),
    );
    expect(user.url).toContain(publicOrigin);

    // Said by the environment, it is said to every command.
    const env = { CFS_USERNAME: as.username, CFS_PASSWORD: as.password, CFS_APPLICATION: as.application };
    const secrets = { CFS_ACCESS_KEY_ID: as.accessKeyId, CFS_PRIVATE_ACCESS_KEY: as.privateAccessKey };
    const elsewhere = pathsOf({ HOME: join(ground, 'elsewhere') });
    const rest = { paths: elsewhere, clock: systemClock, prompt: null, print: () => {}, wait: patient() };
    const flags = { url: publicOrigin, insecure: false };
    await expect(loginCommand({ ...rest, env: { ...env, ...secrets } }, flags)).rejects.toThrow(/cfs login --insecure/);
    await loginCommand({ ...rest, env: { ...env, ...secrets, CFS_INSECURE: '1' } }, flags);
    expect(readAccountFile(accountPaths(elsewhere, name).accountFile).insecure).toBe(true);
  } finally {
    await clear.close();
  }
});
