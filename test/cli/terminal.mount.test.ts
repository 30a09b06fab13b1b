import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { exitCode } from '../../src/cli/exit-codes.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { atTerminal } from '../harness/terminal.ts';
import { PROJECT } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/** What only a person at a terminal sees: questions, and bars. One mount for all; the last test ends it. */

const CFS = [process.execPath, join(PROJECT, 'dist/cli/cfs.js')] as const;
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
      ['\x04', 'cfs: nothing was answered'],
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
      turns: [['Delete 1 item for ever? (yes/no): ', answer]],
    });

  const refused = await empty('y');
  expect([refused.code, refused.seen]).toEqual([exitCode('usage'), expect.stringContaining('nothing was deleted')]);
  expect((await mount.cfs(['trash', 'list'])).stdout).toContain('gone.txt');

  const done = await empty('yes');
  expect([done.code, done.seen]).toEqual([0, expect.stringContaining('1 item deleted for ever')]);
  expect((await mount.cfs(['trash', 'list'])).stdout).toBe('the trash is empty\n');
});

test('cfs umount draws a bar of what it pushes, and ends when all of it is there', async () => {
  await mount.run('head -c 3000000 /dev/urandom > bar.bin');

  const { code, seen } = await atTerminal([...CFS, 'umount'], { env: mount.env() });

  expect(seen).toContain('pushing what is pending (1 change); Ctrl-C stops waiting, the unmount goes on');
  expect(seen).toMatch(/\[#+-+\] 0 of 1 changes, [\d.]+ [KM]iB of 2\.9 MiB, [\d.]+ [KM]iB\/s, [\d.]+ m?s left/);
  for (const line of seen.split(/[\r\n]+/)) expect(line.replaceAll('\x1b[K', '').length).toBeLessThan(80);
  expect([code, seen]).toEqual([0, expect.stringContaining(`unmounted ${mount.directory}`)]);
  expect([...(await mount.serverTree()).keys()]).toContain('bar.bin');
});
