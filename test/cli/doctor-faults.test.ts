import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, copyFileSync, linkSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createSocket } from 'node:net';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ContentId, ResourceUrl } from '../../src/base/vocabulary.ts';
import { type SignInInputs, signIn } from '../../src/cli/commands/login.ts';
import { statusCommand } from '../../src/cli/commands/status.ts';
import { type FindingName, findingKinds } from '../../src/cli/doctor/finding.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { ControlServer } from '../../src/control/server.ts';
import type { Status } from '../../src/control/status-model.ts';
import type { Account } from '../../src/mount/account-file.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { DIRECT_ROUTE } from '../../src/mount/service-route.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { Store } from '../../src/store/environment.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { rootNode } from '../../src/tree/root-node.ts';
import { idleStatus } from '../control/idle-status.ts';
import { sampleNode } from '../store/sample-records.ts';
import { CommandHome } from './cli-harness.ts';
import { Authority, DoctorGround, type Report } from './doctor-ground.ts';

/** Each fault alone, on a machine where everything else is in order: `cfs doctor` names it, and nothing else. */

const shared = new CommandHome();
let server: ReferenceServer;
let authority: Authority;
let inputs: SignInInputs;
let account: Account;
let ground: DoctorGround;
let undo: (() => unknown)[] = [];

beforeAll(async () => {
  authority = new Authority(shared.path('authority'));
  server = await ReferenceServer.open({ dataDirectory: shared.path('server') });
  const { administration } = server;
  await administration.addUser('ann@example.com', 'a password', { scryptCost: 2 ** 10 });
  inputs = {
    username: 'ann@example.com',
    password: 'a password',
    application: await administration.addApplication('tests'),
    ...(await administration.addKeyPair('ann@example.com')),
  };
  account = await signedIn(inputs);
});

afterAll(async () => {
  await server.close();
  shared.dispose();
});

beforeEach(() => {
  ground = new DoctorGround();
  ground.keep(account);
});

afterEach(async () => {
  for (const each of undo.reverse()) await each();
  undo = [];
  server.faults = [];
  ground.dispose();
});

const SHORT_MS = 150;
const HERE = '21 1 0:19 / /home/ann/Cloud rw - fuse.cfs-mount ann rw,user_id=0\n';

/** What breaks one thing. Those of the service that need another account leave the sound one behind. */
const FAULTS: Readonly<Record<FindingName, () => unknown>> = {
  'addon-missing': () =>
    ground.change({
      loadAddon: () => {
        throw new Error('the kernel addon is not built');
      },
    }),
  'glibc-too-old': () => ground.change({ system: () => ({ architecture: 'x64', glibc: '2.31' }) }),
  architecture: () => ground.change({ system: () => ({ architecture: 'riscv64', glibc: '2.40' }) }),
  'mount-helper-hidden': () =>
    writeFileSync(ground.machine.fstabPath, 'ann@example.com /home/ann/Cloud fuse.cfs-mount noauto,setuid=ann 0 0\n'),
  'fuse-module': () => {
    rmSync(ground.machine.devicePath);
    writeFileSync(ground.machine.filesystemsPath, 'nodev\tproc\nnodev\tfusectl\n\tfuseblk\n');
  },
  'fuse-device': () => rmSync(ground.machine.devicePath),
  'fuse-device-refused': () => {
    rmSync(ground.machine.devicePath);
    mkdirSync(ground.machine.devicePath); // cannot be opened for writing, by root neither
  },
  'fuse-request-timeout': () => setRequestTimeouts('20', '0'),
  'continuity-kernel': () => {
    ground.setEnv({ CFS_CONTINUITY: '1' });
    ground.change({ kernelRelease: () => '6.1.0-28-amd64' });
  },
  'continuity-keeper': () => {
    ground.setEnv({ CFS_CONTINUITY: '1' });
    ground.change({ keeperProgram: () => null });
  },
  'fusermount-missing': () => {
    rmSync(ground.home.path('bin/fusermount3'));
    asUserWithoutStore();
  },
  'fusermount-refused': () => {
    const refused = { path: '/usr/bin/fusermount3', mode: 0o4750, isSetuidRoot: true, mayRun: false, group: 'fuse' };
    ground.change({ fusermount: () => refused });
    asUserWithoutStore();
  },
  'mtab-missing': () => {
    rmSync(ground.machine.mtabPath);
    asUserWithoutStore();
  },
  'fusermount-setuid': () => {
    const path = ground.home.path('bin/fusermount3');
    rmSync(path);
    writeFileSync(path, '', { mode: 0o755 });
    asUserWithoutStore();
  },
  'allow-other': () => {
    ground.setEnv({ CFS_ALLOW_OTHER: '1' });
    asUserWithoutStore();
  },
  'configuration-unreadable': () =>
    mkdirSync(`${ground.home.env.XDG_CONFIG_HOME}/cfs/config.toml`, { recursive: true }),
  'configuration-mistake': () => configure('settel = "2s"\n'),
  'variable-unknown': () => ground.setEnv({ CFS_SETLE: '1s' }),
  'not-signed-in': () => rmSync(ground.files.directory, { recursive: true }),
  'account-damaged': () => writeFileSync(ground.files.accountFile, '{"origin":'),
  'account-exposed': () => chmodSync(ground.files.accountFile, 0o644),
  'certificate-file': () => {
    elsewhere('https://127.0.0.1:9');
    ground.setEnv({ SSL_CERT_FILE: ground.home.path('missing.pem') });
  },
  'proxy-address': () => {
    elsewhere('https://cloud.invalid');
    ground.setEnv({ HTTPS_PROXY: 'not a proxy' });
  },
  'proxy-failed': () => {
    elsewhere('https://cloud.invalid');
    // Only http has one of its own: https takes it too.
    ground.setEnv({ https_proxy: '', HTTP_PROXY: '127.0.0.1:9' });
  },
  'service-insecure': () => elsewhere('http://0.0.0.0:9'),
  'dns-failed': () => elsewhere('https://cloud.invalid'),
  'dns-silent': () => {
    elsewhere('https://cloud.invalid');
    ground.change({ limits: { ...ground.machine.limits, lookupMs: SHORT_MS }, lookup: () => new Promise(() => {}) });
  },
  'service-not-running': () => elsewhere('http://127.0.0.1:9'),
  'service-refused': () => elsewhere('https://0.0.0.0:9'),
  'service-silent': () => {
    server.faults = [{ on: '*', times: 'always', then: { hang: true } }];
    ground.change({ limits: { ...ground.machine.limits, answerMs: SHORT_MS } });
  },
  'service-out-of-order': () => {
    server.faults = [{ on: '*', times: 'always', then: { status: 503 } }];
  },
  'service-foreign': () => {
    server.faults = [{ on: 'POST', times: 'always', then: { garbage: true } }];
  },
  'tls-expired': () => encrypted(['20200101000000Z', '20200201000000Z']),
  'tls-not-yet-valid': () => encrypted(['20480101000000Z', '20490101000000Z']),
  'tls-wrong-host': () => encrypted(undefined, 'DNS:other.example.com'),
  'tls-unknown-authority': async () => {
    await encrypted();
    ground.setEnv({ SSL_CERT_FILE: '' });
  },
  'tls-broken': async () => {
    const plain = createServer((_request, response) => response.end());
    undo.push(() => plain.close());
    await new Promise<void>((resolve) => plain.listen(0, '127.0.0.1', resolve));
    elsewhere(`https://127.0.0.1:${(plain.address() as AddressInfo).port}`);
  },
  'sign-in-refused': async () => {
    await server.administration.revokeTokens('ann@example.com');
    undo.push(async () => {
      account = await signedIn(inputs);
    });
  },
  'token-refused': () => {
    server.faults = [{ on: 'GET', path: 'user', times: 'always', then: { status: 403 } }];
  },
  'clock-skew': () => ground.change({ clock: { ...systemClock, nowMs: () => systemClock.nowMs() + 2 * 3_600_000 } }),
  'store-exposed': () => {
    for (const path of [ground.files.directory, ground.files.storeDirectory]) chmodSync(path, 0o755);
  },
  'store-foreign': () => {
    rmSync(dirname(ground.files.socketPath), { recursive: true });
    asUser();
  },
  'store-read-only': () => {
    rmSync(ground.files.storeDirectory, { recursive: true });
    writeFileSync(ground.files.storeDirectory, '', { mode: 0o600 });
  },
  'store-in-use': async () => {
    const store = await openStore();
    undo.push(() => store.close());
  },
  'store-mounted': async () => {
    const store = await openStore();
    undo.push(() => store.close());
    await mounted(() => statusOf({}));
  },
  // A program that runs cannot be opened for writing (ETXTBSY), by root neither.
  'store-unopened': async () => {
    await (await openStore()).close();
    const index = join(ground.files.storeDirectory, 'index/data.mdb');
    rmSync(index);
    copyFileSync('/bin/sleep', index);
    chmodSync(index, 0o755);
    const running = spawn(index, ['600'], { stdio: 'ignore' });
    await once(running, 'spawn');
    undo.push(async () => {
      running.kill();
      await once(running, 'exit');
    });
  },
  'store-newer': async () => {
    const store = await openStore();
    store.transact((tx) => tx.put('meta', 'schema', 99));
    await store.close();
  },
  'store-damaged': async () => {
    const store = await openStore();
    store.transact((tx) => tx.put('garbage', 99 as ContentId, true));
    await store.close();
  },
  'changes-waiting': async () => {
    const store = await openStore(ground.files.accountStoreDirectory);
    const root = rootNode({ resource: `${account.origin}/folder/1` as ResourceUrl, uid: 0, gid: 0 }, 1);
    store.transact((tx) => {
      tx.put('meta', 'next-inode', 3);
      writeNode(tx, undefined, root, 1);
      writeNode(tx, undefined, sampleNode(2, { kind: 'folder' }), 1);
    });
    await store.close();
  },
  'disk-full': () => ground.change({ disk: () => ({ freeBytes: 1e6, totalBytes: 1e11 }) }),
  'disk-below-reserve': () => ground.change({ disk: () => ({ freeBytes: 5e8, totalBytes: 1e11 }) }),
  'mount-dead': () => ground.change({ mountTable: () => HERE, probe: async () => 'dead' }),
  'mount-hangs': () => ground.change({ mountTable: () => HERE, probe: async () => 'hangs' }),
  'mount-silent': async () => {
    await mounted(() => new Promise(() => {}));
    ground.change({ limits: { ...ground.machine.limits, statusMs: SHORT_MS } });
    const store = await openStore();
    undo.push(() => store.close());
  },
  'mount-offline': () => mounted(() => statusOf({ connection: { state: 'offline', sinceMs: 1, reason: null } })),
  'mount-signed-out': () =>
    mounted(() => statusOf({ connection: { state: 'sign-in-needed', sinceMs: 1, reason: null } })),
  'changes-parked': () =>
    mounted(() => statusOf({ parked: [{ path: 'a\nb', kind: 'upload', reason: 'too big', sinceMs: 1 }] })),
  'socket-stale': () => staleSocket(),
  'socket-exposed': () => chmodSync(dirname(ground.files.socketPath), 0o755),
  'socket-foreign': () => {
    rmSync(dirname(ground.files.socketPath), { recursive: true });
    writeFileSync(dirname(ground.files.socketPath), '');
  },
};

test('a healthy machine gives no finding', async () => {
  const report = await ground.doctor();

  expect(namesOf(report)).toEqual([]);
  expect(report.code).toBe(exitCode('ok'));
  expect(report.text).toMatch(/^fuse: sound\n.*\nnothing is wrong\n$/s);
});

test('a sound machine with a private certificate authority has no finding except the sign-in', async () => {
  await encrypted();

  expect(namesOf(await ground.doctor())).toEqual(['sign-in-refused']);
});

/** The other root's store is read beside a mount; that of the mount itself is not, and is no finding. */
test('changes of the root that is not mounted are told beside a mount of the other one', async () => {
  await FAULTS['changes-waiting']();
  const store = await openStore();
  undo.push(() => store.close());
  await mounted(() => statusOf({}));

  const { text } = await ground.doctor();

  expect(namesOf({ text })).toEqual(['changes-waiting']);
  const words = text.replace(/\s+/g, ' ');
  expect(words).toContain(`mounted by process ${process.pid}, so it was not checked`);
  expect(words).toContain('1 change waits in the store of --root account, which is not mounted');
  let status = '';
  const show = (shown: string): void => {
    status += shown;
  };
  await statusCommand({ paths: pathsOf(ground.home.env), clock: systemClock, print: show }, { json: true });
  expect(JSON.parse(status)).toMatchObject({ accounts: [{ waiting: [{ root: 'account', changes: 1, local: 0 }] }] });
});

test('a store that is in use names the process to end', async () => {
  await FAULTS['store-in-use']();

  const { text } = await ground.doctor();

  expect(text.replace(/\s+/g, ' ')).toContain(`end that process (kill ${process.pid})`);
});

test('a mount that hangs and is silent is one finding, with its process', async () => {
  await FAULTS['mount-silent']();
  await FAULTS['mount-hangs']();

  const { text } = await ground.doctor();

  expect(namesOf({ text })).toEqual(['mount-hangs']);
  expect(text.replace(/\s+/g, ' ')).toContain(`kill -9 ${process.pid} `);
});

test('a check that takes longer than two seconds is named while it lasts', async () => {
  const hung: ((state: 'hangs') => void)[] = [];
  const named: string[] = [];
  ground.onWarning = (text) => {
    named.push(text);
    for (const answer of hung.splice(0)) answer('hangs');
  };
  const after = (ms: number, act: () => void) => systemClock.after(ms === 2_000 ? 0 : ms, act);
  const clock = { ...systemClock, after };
  ground.change({ clock, mountTable: () => HERE, probe: () => new Promise((resolve) => hung.push(resolve)) });

  expect(namesOf(await ground.doctor())).toEqual(['mount-hangs']);
  expect(named[0]).toMatch(/^waiting for the mount at \S+ to answer\n$/);
});

test('the request timeout that ends a mount is the shorter of the two settings that are not 0', async () => {
  for (const [byDefault, most, expected] of [
    ['0', '60', 'fs.fuse.max_request_timeout is 60'],
    ['30', '60', 'fs.fuse.default_request_timeout is 30'],
    ['90', '60', 'fs.fuse.max_request_timeout is 60'],
  ] as const) {
    setRequestTimeouts(byDefault, most);
    expect((await ground.doctor()).text.replace(/\s+/g, ' ')).toContain(expected);
  }

  setRequestTimeouts('0', '0');
  expect(namesOf(await ground.doctor())).toEqual([]);
});

test('a small disk that is two thirds free is not full', async () => {
  ground.change({ disk: () => ({ freeBytes: 16 * 1024 ** 2, totalBytes: 24 * 1024 ** 2 }) });
  expect(namesOf(await ground.doctor())).toEqual([]);

  ground.change({ disk: () => ({ freeBytes: 1024 ** 2, totalBytes: 24 * 1024 ** 2 }) });
  expect(namesOf(await ground.doctor())).toEqual(['disk-full']);
});

test('a mount that fstab(5) made at boot, without XDG_RUNTIME_DIR, is found by whoever signs in', async () => {
  const store = await openStore();
  undo.push(() => store.close());
  await mounted(() => statusOf({}), ground.files.bootSocketPath);

  const report = await ground.doctor();

  expect(namesOf(report), report.text).toEqual([]);
  expect(report.text.replace(/\s+/g, ' ')).toContain(`mounted by process ${process.pid}, so it was not checked`);
});

test.each(findingKinds())('cfs doctor reports %s and no other finding', async (name, kind) => {
  await FAULTS[name]();

  const report = await ground.doctor({ store: name === 'store-mounted' });

  expect(namesOf(report), report.text).toEqual([name]);
  expect(report.code).toBe(kind.severity === 'problem' ? exitCode(kind.exit) : exitCode('ok'));
  expect(report.text).toMatch(/^ {2}→ \S/m);
  expect(report.text).not.toContain('{}');
  // A terminal of 80 columns, and nothing that a name could do to it.
  expect(report.text).not.toMatch(/[^\P{Cc}\n]/u);
  for (const line of report.text.split('\n')) expect(line.length <= 80 || !line.trim().includes(' '), line).toBe(true);
});

test('when everything is broken, everything is told', async () => {
  for (const name of ['fuse-module', 'configuration-mistake', 'account-exposed'] as const) await FAULTS[name]();
  for (const name of ['store-exposed', 'socket-exposed', 'disk-full', 'mount-dead', 'clock-skew'] as const)
    await FAULTS[name]();
  server.faults = [{ on: '*', times: 'always', then: { status: 500 } }];

  const report = await ground.doctor();

  expect(namesOf(report)).toEqual([
    ...['fuse-module', 'configuration-mistake', 'account-exposed', 'clock-skew'],
    ...['service-out-of-order', 'store-exposed', 'socket-exposed', 'disk-full', 'mount-dead'],
  ]);
  expect(report.code).toBe(exitCode('noFuse'));
  expect(report.text).toContain('8 problems and 1 warning');
});

test('every mistake of the configuration is a finding with its place', async () => {
  configure('settel = "2s"\ntransfers = 0\n');
  ground.setEnv({ CFS_SETTLE: 'soon' });

  const { code, text } = await ground.doctor({ json: true });
  const { schema, findings } = JSON.parse(text) as { schema: number; findings: { name: string; what: string }[] };

  expect([schema, code]).toEqual([1, exitCode('usage')]);
  expect(new Set(findings.map(({ name }) => name))).toEqual(new Set(['configuration-mistake']));
  expect(findings.map(({ what }) => what.replace(/^.*config\.toml/, ''))).toEqual([
    ':1: settel: there is no such option',
    expect.stringMatching(/^CFS_SETTLE: /),
    expect.stringMatching(/^:2: transfers: /),
  ]);
});

test('keys that were revoked are a refused sign-in, too', async () => {
  const keys = await server.administration.addKeyPair('ann@example.com');
  ground.dispose();
  ground = new DoctorGround();
  ground.keep(await signedIn({ ...inputs, ...keys }));
  await server.administration.revokeKeyPair(keys.accessKeyId);

  expect(namesOf(await ground.doctor())).toEqual(['sign-in-refused']);
});

/** The account of somebody who signs in to the server. */
async function signedIn(as: SignInInputs): Promise<Account> {
  const paths = pathsOf({ HOME: shared.path('signing-in') });
  const how = { origin: server.origin, inputs: as, route: DIRECT_ROUTE };
  return (await signIn({ paths, clock: systemClock, log: silentLogger }, how)).account;
}

function namesOf({ text }: Pick<Report, 'text'>): string[] {
  return [...text.matchAll(/\[([a-z-]+)\]$/gm)].map(([, name = '']) => name);
}

/** Another user of this machine, who is not root. */
function asUser(): void {
  ground.change({ uid: ground.machine.uid + 1 });
}

/** The same, who never mounted. */
function asUserWithoutStore(): void {
  for (const path of [ground.files.storeDirectory, dirname(ground.files.socketPath)]) rmSync(path, { recursive: true });
  asUser();
}

function configure(text: string): void {
  mkdirSync(`${ground.home.env.XDG_CONFIG_HOME}/cfs`, { recursive: true });
  writeFileSync(`${ground.home.env.XDG_CONFIG_HOME}/cfs/config.toml`, text);
}

/** The settings of the kernel as sysctl(8) writes them, in seconds. */
function setRequestTimeouts(byDefault: string, most: string): void {
  const directory = ground.machine.fuseSettingsPath;
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'default_request_timeout'), `${byDefault}\n`);
  writeFileSync(join(directory, 'max_request_timeout'), `${most}\n`);
}

/** The only account is one of another service. */
function elsewhere(origin: string): void {
  rmSync(ground.files.directory, { recursive: true });
  rmSync(dirname(ground.files.socketPath), { recursive: true });
  ground.plantAccount(origin);
}

/** The only account is one of a service that speaks TLS; its authority is believed. */
async function encrypted(life?: readonly [string, string], name?: string): Promise<void> {
  const service = await authority.serve(life, name);
  undo.push(() => service.close());
  elsewhere(service.origin);
  ground.setEnv({ SSL_CERT_FILE: authority.certificateFile });
}

function openStore(directory: string = ground.files.storeDirectory): Promise<Store> {
  return Store.open({ directory, clock: systemClock, log: silentLogger });
}

function statusOf(changes: Partial<Status>): Status {
  return idleStatus({ account: { origin: server.origin, username: 'ann@example.com' }, ...changes });
}

/** A mount that answers at its socket, and no other part of it. */
async function mounted(
  status: () => Status | Promise<Status>,
  socketPath: string = ground.files.socketPath,
): Promise<void> {
  const handlers = { status } as unknown as ConstructorParameters<typeof ControlServer>[0]['handlers'];
  const control = new ControlServer({ socketPath, handlers, clock: systemClock, log: silentLogger });
  undo.push(() => control.close());
  await control.listen();
}

/** Node takes a socket away with its server: this one keeps a second name. */
async function staleSocket(): Promise<void> {
  const { socketPath } = ground.files;
  const socket = createSocket();
  await new Promise<void>((resolve) => socket.listen(`${socketPath}.1`, resolve));
  linkSync(`${socketPath}.1`, socketPath);
  await new Promise<void>((resolve) => socket.close(() => resolve()));
}
