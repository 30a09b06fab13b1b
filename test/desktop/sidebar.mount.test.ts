import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFailed } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingFile, missingPrograms, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

/** The program behind the entries in the sidebar, started by a session bus, and seen by a client of libcloudproviders. */

interface Shown {
  readonly name: string;
  readonly path: string;
  readonly status: 'idle' | 'syncing' | 'error' | 'invalid';
  readonly details: string;
  readonly menu: readonly string[];
  /** The path at the last change of the list, where a file manager leads; null: the list has not changed since the start of the client. */
  readonly listed: string | null;
}

const CLIENT = join(PROJECT, 'test/desktop/cloud-providers.py');
const PYTHON = '/usr/bin/python3';
const MISSING =
  missingForMounts() ??
  missingPrograms('make', 'pkg-config', 'dbus-daemon', process.env.CC ?? 'cc') ??
  missingFile('/usr/include/cloudproviders/cloudproviders.h') ??
  missingFile('/usr/include/json-glib-1.0/json-glib/json-glib.h') ??
  missingFile('/usr/lib/python3/dist-packages/gi/__init__.py') ??
  missingTypelib();

function missingTypelib(): string | null {
  const text = "import gi; gi.require_version('CloudProviders', '0.3')";
  return spawnSync(PYTHON, ['-c', text]).status === 0 ? null : 'gir1.2-cloudproviders-0.3.0';
}

let built: string;
let mount: MountFixture;
let bus: ChildProcess;
let address: string;
let client: ChildProcess;
let shown: readonly Shown[] = [];

beforeAll(async () => {
  if (MISSING !== null) return;
  built = mkdtempSync(join(tmpdir(), 'cfs-sidebar-'));
  const program = join(built, 'cfs-sidebar');
  await runCommand(['make', '-C', join(PROJECT, 'desktop'), `BUILD=${built}`, 'CFLAGS=-O1 -g -Werror', program]);
  for (const folder of ['dbus-1/services', 'cloud-providers']) mkdirSync(join(built, folder), { recursive: true });
  const service = `[D-BUS Service]\nName=cfs.mount.Sidebar\nExec=${program}\n`;
  writeFileSync(join(built, 'dbus-1/services/cfs.mount.Sidebar.service'), service);
  await runCommand(['cp', join(PROJECT, 'desktop/sidebar/cfs-mount.ini'), join(built, 'cloud-providers')]);
}, 60_000);

afterAll(() => {
  if (MISSING === null) rmSync(built, { recursive: true, force: true });
});

beforeEach(async () => {
  if (MISSING !== null) return;
  mount = await MountFixture.start();
  const env = { ...process.env, ...mount.env(), XDG_DATA_DIRS: built };
  bus = spawn('dbus-daemon', ['--session', '--nofork', '--print-address=1'], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env,
  });
  address = await firstLine(bus);
  client = spawn(PYTHON, [CLIENT], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...env, DBUS_SESSION_BUS_ADDRESS: address },
  });
  if (client.stdout !== null)
    createInterface({ input: client.stdout }).on('line', (line) => {
      shown = JSON.parse(line);
    });
});

afterEach(async () => {
  if (MISSING !== null) return;
  for (const child of [client, bus]) {
    if (child.exitCode !== null) continue;
    child.kill();
    await once(child, 'exit');
  }
  await mount.dispose();
  shown = [];
});

async function firstLine(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error('the output is not read');
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return line;
}

function entry(details: string): Promise<unknown> {
  return expect.poll(() => shown.map((each) => each.details), { timeout: 30_000, interval: 20 }).toEqual([details]);
}

/** [S-desktop-9] */
testUnless(MISSING)('the sidebar shows the mount with its state and its menu', { timeout: 120_000 }, async () => {
  onTestFailed(mount.printLogs);
  await entry('Up to date');
  const menu = ['Show in the Page', 'Pause Sending'];
  await expect.poll(() => shown[0]?.menu, { timeout: 30_000, interval: 20 }).toEqual(menu);
  expect(shown).toMatchObject([{ name: 'mnt', path: mount.directory, status: 'idle', details: 'Up to date', menu }]);

  client.stdin?.write('Pause Sending\n');
  await entry('Paused');
  await mount.run('echo one > a; echo two > b');
  await entry('Paused, 2 changes wait');
  await expect.poll(() => shown[0]?.menu, { timeout: 30_000, interval: 20 }).toContain('Resume Sending');
  expect(shown).toMatchObject([{ status: 'idle', menu: ['Show in the Page', 'Resume Sending'] }]);
  client.stdin?.write('Resume Sending\n');
  await entry('Up to date');
  await mount.cfs(['limit', '--up', '20KiB']);
  await mount.run('head -c 200000 /dev/urandom > c');
  await entry('1 change is sent');
  expect(shown).toMatchObject([{ status: 'syncing' }]);
  await mount.cfs(['limit', '--up', 'off']);
  await entry('Up to date');
});

/** [S-desktop-9] */
testUnless(MISSING)(
  'the entry is gone when the mount has ended or was killed, and there with the next mount',
  async () => {
    onTestFailed(mount.printLogs);
    await entry('Up to date');

    await mount.kill9();
    await expect.poll(() => shown, { timeout: 30_000, interval: 20 }).toEqual([]);
    await mount.mount();
    await entry('Up to date');
    await mount.unmount();
    await expect.poll(() => shown, { timeout: 30_000, interval: 20 }).toEqual([]);
    await mount.mount();
    await entry('Up to date');
    await expect.poll(() => shown[0]?.listed, { timeout: 30_000, interval: 20 }).toBe(mount.directory);
  },
);

/** What the session bus answers for the actions of the first entry, which a menu that is still open calls. */
async function actionsOfFirst(): Promise<string> {
  const argv = [
    'gdbus',
    'call',
    '--session',
    '--dest',
    'cfs.mount.Sidebar',
    '--object-path',
    '/cfs/mount/Sidebar/mount1',
  ];
  const options = { env: { DBUS_SESSION_BUS_ADDRESS: address }, anyExitCode: true };
  const { stdout, stderr } = await runCommand([...argv, '--method', 'org.gtk.Actions.List'], options);
  return stdout + stderr;
}

/** [S-desktop-9] */
testUnless(MISSING)('an entry that is gone takes its actions along', async () => {
  onTestFailed(mount.printLogs);
  await entry('Up to date');
  expect(await actionsOfFirst()).toContain('retry');
  await mount.unmount();
  await expect.poll(() => shown, { timeout: 30_000, interval: 20 }).toEqual([]);
  await expect.poll(actionsOfFirst, { timeout: 30_000 }).toContain('does not exist');
});

/** [S-desktop-9] */
testUnless(MISSING)('the entry is gone while changes are still sent after an unmount', async () => {
  onTestFailed(mount.printLogs);
  await entry('Up to date');
  await mount.cfs(['limit', '--up', '20KiB']);
  await mount.run('head -c 400000 /dev/urandom > c');
  await entry('1 change is sent');
  const ended = mount.unmount();
  await expect.poll(() => shown, { timeout: 30_000, interval: 20 }).toEqual([]);
  const { accounts } = JSON.parse((await mount.cfs(['status', '--json'])).stdout);
  await mount.cfs(['limit', '--up', 'off']);
  await ended;
  expect(accounts[0].status).toMatchObject({ phase: 'draining', pending: { count: 1 } });
});
