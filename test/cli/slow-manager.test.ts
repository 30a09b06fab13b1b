import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { installService, removeService } from '../../src/cli/commands/service.ts';
import { loadOptions } from '../../src/config/load.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { accountFileOf, writeAccountFile } from '../../src/mount/account-file.ts';

let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'cfs-service-'));
});

afterEach(() => rmSync(home, { recursive: true, force: true }));

test('a manager that is asked, and takes longer to end a mount than the command waits, is not told to be missing', async () => {
  const units = join(home, '.config/systemd/user');
  mkdirSync(units, { recursive: true });
  writeFileSync(join(units, 'cfs-mount-mnt.service'), '');
  writeFileSync(join(home, 'systemctl'), '#!/bin/sh\ncase "$2" in disable) exec sleep 30 ;; esac\n', { mode: 0o755 });
  let said = '';
  const deps = {
    paths: pathsOf({ HOME: home }),
    env: { PATH: `${home}:${process.env.PATH}` },
    print: (text: string) => {
      said += text;
    },
    systemctlMsMax: 300,
  };

  await removeService(deps, { directory: '/mnt' });

  expect(existsSync(join(units, 'cfs-mount-mnt.service'))).toBe(false);
  expect(said).toContain('systemctl did not answer within 300 ms: the mount may still be pushing changes');
  expect(said).not.toContain('no manager was asked');
});

test('without systemctl nothing is installed, and the line of fstab is said', async () => {
  const paths = pathsOf({ HOME: home });
  const account = { origin: 'http://127.0.0.1:9', userId: '17', username: 'ann@example.com', application: '/sc/1/2' };
  const secrets = { accessKeyId: 'key', privateAccessKey: 'private', refreshToken: 'http://127.0.0.1:9/token' };
  writeAccountFile(accountFileOf(paths, account), { ...account, ...secrets });
  const directory = join(home, 'My Cloud');
  mkdirSync(directory);
  const { options } = loadOptions({ flags: {}, env: {}, file: null });
  const deps = { paths, env: { PATH: join(home, 'no-programs') }, print: () => {}, options, given: {} };

  await expect(installService(deps, { directory, account: null })).rejects.toMatchObject({
    exitCode: 15,
    message: expect.stringMatching(
      /^this system has no systemctl, so nothing was installed; .*: ann@example\.com \S+My\\040Cloud fuse\.cfs-mount setuid=\S+ 0 0$/,
    ),
  });
  expect(readdirSync(join(home, '.config/systemd/user'))).toEqual([]);
});
