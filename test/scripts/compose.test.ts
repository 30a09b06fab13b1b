import { expect, test } from 'vitest';
import { databaseUrl } from '../../src/cli/serve/database-url.ts';
import { SERVE_COMMANDS } from '../../src/cli/serve/serve-table.ts';
import { PICTURE_DIRECTORY } from '../../src/server/picture-library.ts';
import { POSTGRES_PACKAGE } from '../../src/server/postgres/postgres-library.ts';
import { TrustedProxies } from '../../src/server/remote-address.ts';
import { s3Credentials } from '../../src/server/s3/s3-credentials.ts';
import { s3Location } from '../../src/server/s3/s3-location.ts';
import { textOf } from '../imports.ts';
import { plainYaml } from './plain-yaml.ts';

/** `packaging/container/compose.yaml`, as far as no container engine is needed. */

interface ComposeService {
  readonly image: string;
  readonly build?: { readonly context: string; readonly dockerfile: string };
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly networks: readonly string[];
  readonly depends_on?: readonly string[];
}

interface Compose {
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly networks: { readonly inner: { readonly ipam: { readonly config: readonly { readonly subnet: string }[] } } };
  readonly volumes: Readonly<Record<string, null>>;
}

const FILE = 'packaging/container/compose.yaml';
const HEALTH_PORT = 9101;
const text = textOf(FILE);
const compose = plainYaml(text) as Compose;
const services = Object.entries(compose.services);
const servers = services.filter(([name]) => name.startsWith('server-')).map(([, service]) => service);

/** The flags of a command by name; a switch has true. */
function flagsOf(command: readonly string[]): ReadonlyMap<string, string | true> {
  const row = SERVE_COMMANDS.find(({ name }) => name === 'serve');
  const flags = new Map<string, string | true>();
  for (const words = [...command]; words.length > 0; ) {
    const flag = words.shift() as string;
    const known = row?.flags.find((each) => each.flag === flag);
    expect(known, flag).toBeDefined();
    flags.set(flag, known?.placeholder === null ? true : (words.shift() as string));
  }
  return flags;
}

test('every key of compose.yaml is one of the Compose specification that it needs, and every name leads somewhere', () => {
  const keys = ['image', 'build', 'command', 'environment', 'ports', 'volumes', 'networks', 'depends_on', 'restart'];
  const known = new Set([...keys, 'read_only', 'tmpfs', 'stop_grace_period']);
  expect(Object.keys(compose).sort()).toEqual(['name', 'networks', 'services', 'volumes']);
  const used = new Set<string>();
  for (const [name, service] of services) {
    expect(
      Object.keys(service).filter((key) => !known.has(key)),
      name,
    ).toEqual([]);
    expect(
      service.networks.filter((network) => !(network in compose.networks)),
      name,
    ).toEqual([]);
    expect(
      (service.depends_on ?? []).filter((other) => !(other in compose.services)),
      name,
    ).toEqual([]);
    // A version, unless it is built here.
    expect(service.build !== undefined || /:[\w.-]*\d/.test(service.image), service.image).toBe(true);
    for (const volume of service.volumes ?? []) {
      const [source] = volume.split(':') as [string];
      if (source.startsWith('./')) expect(textOf(`packaging/container/${source}`), volume).not.toBe('');
      else used.add(source);
    }
  }
  expect([...used].sort()).toEqual(Object.keys(compose.volumes).sort());
});

test('both servers have equal options, which cfs serve accepts, and a volume of their own', () => {
  expect(servers).toHaveLength(2);
  const [first, second] = servers as [ComposeService, ComposeService];
  expect({ ...second, volumes: first.volumes }).toEqual(first);
  expect(second.volumes).not.toEqual(first.volumes);
  const flags = flagsOf(first.command ?? []);
  expect(databaseUrl(flags.get('--database') as string)).toBe('postgres://cfs@database/cfs');
  const { bucket, origin } = s3Location(flags.get('--objects') as string);
  expect(origin).toBe('http://store:9000');
  expect(compose.services.bucket?.command).toContain(`store/${bucket}`);
  expect(flags.get('--public-origin')).toMatch(/^https:\/\/\$\{CFS_HOST:\?\}$/);
  expect(flags.get('--insecure')).toBe(true);
  const [{ subnet }] = compose.networks.inner.ipam.config as [{ subnet: string }];
  expect(flags.get('--trusted-proxy')).toBe(subnet);
  expect(new TrustedProxies([subnet])).toBeDefined();
  const given = { AWS_ACCESS_KEY_ID: 'key', AWS_SECRET_ACCESS_KEY: 'secret' };
  expect(Object.keys(first.environment ?? {}).sort()).toEqual([...Object.keys(given), 'PGPASSWORD'].sort());
  expect(s3Credentials(given)).toMatchObject({ accessKeyId: 'key' });
  expect(flags.get('--admin-listen')).toBe(`0.0.0.0:${HEALTH_PORT}`);
});

test('the balancer knows both servers, asks for their health, and tries the other one if a server does not answer', () => {
  const { command, volumes, environment } = compose.services.balancer as ComposeService;
  expect(command).toEqual(['caddy', 'run', '--config', '/etc/caddy/Caddyfile']);
  expect(volumes).toContain('./Caddyfile:/etc/caddy/Caddyfile:ro');
  expect(environment).toHaveProperty('CFS_HOST');
  const lines = textOf('packaging/container/Caddyfile')
    .split('\n')
    .map((line) => line.trim());
  expect(lines).toContain('reverse_proxy server-1:8080 server-2:8080 {');
  expect(lines).toEqual(
    expect.arrayContaining(['health_uri /healthz', `health_port ${HEALTH_PORT}`, 'fail_duration 5s']),
  );
  expect(lines).toContain('lb_try_duration 10s');
});

test('no secret stands in compose.yaml, and its head names every variable', () => {
  const variables = new Set([...text.matchAll(/\$\{(\w+)/g)].map(([, name]) => name));
  const named = [...text.matchAll(/^# {3}(CFS_\w+) /gm)].map(([, name]) => name);
  expect(named.sort()).toEqual([...variables].sort());
  // Without a value, nothing starts.
  expect(text.match(/\$\{\w+(?!:\?\}|\w)/g)).toBeNull();
  const secrets = services.flatMap(([, { environment = {} }]) => Object.entries(environment));
  const plain = secrets.filter(([name, value]) => /PASSWORD|KEY|SECRET/.test(name) && !value.startsWith('${'));
  expect(plain).toEqual([]);
});

test('the image with the client of PostgreSQL is built on that of the Dockerfile, and puts it where cfs serve looks', () => {
  for (const { build, image } of servers) {
    expect(build).toEqual({ context: '.', dockerfile: 'Dockerfile.database' });
    expect(image).toBe('cfs-serve-database');
  }
  const dockerfile = textOf('packaging/container/Dockerfile.database');
  expect(dockerfile).toContain(` ${POSTGRES_PACKAGE}\n`);
  expect(dockerfile).toContain(`/client/node_modules ${PICTURE_DIRECTORY}/node_modules\n`);
  expect(dockerfile).toContain('\nFROM cfs-serve\n');
  expect(text).toContain('docker build -t cfs-serve .\n');
});

test('the parser of compose.yaml refuses what it does not know', () => {
  expect(plainYaml('a:\n  b: text\n  c: ["1", "2"]\nd:\n  - e: f\n    g: true\n  - h\ni:\n')).toEqual({
    a: { b: 'text', c: ['1', '2'] },
    d: [{ e: 'f', g: true }, 'h'],
    i: null,
  });
  for (const wrong of [
    'a: &anchor',
    'a: *alias',
    'a: "b"',
    'a: 8',
    'a: yes',
    'a: b # c',
    'a: b\na: c',
    'a:\n    b: c',
    '\ta: b',
    'text',
  ])
    expect(() => plainYaml(wrong), wrong).toThrow();
});
