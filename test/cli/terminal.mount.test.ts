import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { atTerminal } from '../harness/terminal.ts';
import { PROJECT } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/** What only a person at a terminal sees: questions, and bars. One mount for all; the last test but one ends it. */

const CFS = [process.execPath, join(PROJECT, 'dist/cli/cfs.js')] as const;
/** Nothing is coloured, so that NO_COLOR holds whether it is set or not. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: that is what a terminal gets
const COLOUR = /\x1b\[[\d;]*m/;
let mount: MountFixture;

beforeAll(async () => {
  mount = await MountFixture.start({ flags: ['--settle', '1h', '--up-limit', '1MiB'] });
});

afterAll(async () => {
  await mount?.dispose();
});

test('cfs login asks for what nobody gave, shows what is typed, and of secrets nothing', async () => {
  const home = new CommandHome();
  try {
    const { url, username, password, application, accessKeyId, privateAccessKey } = mount.server.account;

    const { code, seen } = await atTerminal([...CFS, 'login', url], {
      env: home.env,
      turns: [
        ['User name (e-mail address): ', username],
        ['Password: ', password],
        ['Application ID: ', application],
        ['Access key ID: ', accessKeyId],
        ['Private access key: ', privateAccessKey],
      ],
    });

    expect([code, seen]).toEqual([0, expect.stringContaining(`signed in to ${url} as ${username}`)]);
    expect(seen).toContain(`Application ID: ${application}`);
    expect(seen).not.toContain(password);
    expect(seen).not.toContain(privateAccessKey);
    expect((await home.run('cfs', ['accounts'])).stdout).toContain(`${username} at ${url}, not mounted`);
  } finally {
    home.dispose();
  }
});

test('Ctrl-C and Ctrl-D at a question are one sentence, and nobody is signed in', async () => {
  const home = new CommandHome();
  try {
    for (const [key, sentence] of [
      ['\x03', 'cfs: interrupted'],
      ['\x04', 'cfs: no answer was given'],
    ] as const) {
      const { code, seen } = await atTerminal([...CFS, 'login', mount.server.account.url], {
        env: home.env,
        turns: [['User name (e-mail address): ', key]],
      });
      expect([code, seen]).toEqual([exitCode('usage'), expect.stringContaining(sentence)]);
    }
    expect((await home.run('cfs', ['accounts'])).stdout).toContain('not signed in');
  } finally {
    home.dispose();
  }
});

/** [S-trash-1] */
test('cfs trash empty asks first, and does nothing for any other word than yes', async () => {
  await mount.run('printf gone > gone.txt');
  await mount.sync();
  await mount.run('rm gone.txt');
  await mount.sync();
  const empty = (answer: string) =>
    atTerminal([...CFS, 'trash', 'empty'], {
      env: mount.env(),
      turns: [['Delete 1 item permanently? (yes/no): ', answer]],
    });

  const refused = await empty('y');
  expect([refused.code, refused.seen]).toEqual([exitCode('usage'), expect.stringContaining('nothing was deleted')]);
  expect((await mount.cfs(['trash', 'list'])).stdout).toContain('gone.txt');

  const done = await empty('yes');
  expect([done.code, done.seen]).toEqual([0, expect.stringContaining('1 item deleted permanently')]);
  expect((await mount.cfs(['trash', 'list'])).stdout).toBe('the trash is empty\n');
});

test('cfs sync --wait draws a bar with bytes, files, rate and time left; away from a terminal there is no such thing', async () => {
  await mount.run('head -c 3000000 /dev/urandom > bar.bin');

  const { code, seen } = await atTerminal([...CFS, 'sync', '--wait'], { env: mount.env() });

  expect(code).toBe(0);
  expectBar(seen);
  expect(seen).toContain('everything is with the service (pushed 1 change)');
  await mount.run('printf x > small.txt');
  const plain = await mount.cfs(['sync', '--wait']);
  expect(plain.stdout + plain.stderr).not.toMatch(/\r|\[#/);
});

test('cfs status --watch shows how it stands until Ctrl-C', async () => {
  const { code, seen } = await atTerminal([...CFS, 'status', '--watch'], {
    env: mount.env(),
    turns: [['with the service', '\x03']],
  });

  expect([code, seen]).toEqual([0, expect.stringMatching(/storage .* with the service/)]);
  expect(seen).not.toMatch(COLOUR);
});

test('cfs umount draws a bar of what it pushes, and ends when all of it is there', async () => {
  await mount.run('head -c 3000000 /dev/urandom > last.bin');

  const { code, seen } = await atTerminal([...CFS, 'umount'], { env: mount.env() });

  expect(seen).toContain('pushing pending changes (1 change); Ctrl-C stops waiting, the unmount continues');
  expectBar(seen);
  expect([code, seen]).toEqual([0, expect.stringContaining(`unmounted ${mount.directory}`)]);
  expect([...(await mount.serverTree()).keys()]).toContain('last.bin');
});

test('a terminal that was stopped by Ctrl-S stops nothing else', async () => {
  const foreground = [process.execPath, join(PROJECT, 'dist/cli/cfs-mount.js'), '--foreground', mount.directory];
  const terminal = atTerminal(foreground, { env: mount.env(), turns: [['mounted ', '\x13']] });
  await vi.waitUntil(async () => (await mount.status()) !== null, { timeout: 30_000 });

  await mount.run('printf seen > seen.txt; printf unseen > unseen.txt');
  expect(await mount.cfs(['sync', '--wait'])).toMatchObject({ code: 0 });
  expect(await mount.cfs(['status'])).toMatchObject({ stdout: expect.stringContaining(mount.directory) });
  expect(await mount.cfs(['umount'])).toMatchObject({ code: 0 });

  expect(await terminal).toMatchObject({ code: 0 });
});

/** A bar of one file of 3,000,000 bytes, in a terminal of 80 columns. */
function expectBar(seen: string): void {
  expect(seen).toMatch(/\[#+-+\] 0 of 1 changes, [\d.]+ [KM]iB of 2\.9 MiB, [\d.]+ [KM]iB\/s, [\d.]+ m?s left/);
  expect(seen).not.toMatch(COLOUR);
  for (const line of seen.split(/[\r\n]+/)) expect(line.replaceAll('\x1b[K', '').length).toBeLessThan(80);
}
