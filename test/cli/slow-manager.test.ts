import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removeService } from '../../src/cli/service.ts';
import { pathsOf } from '../../src/config/paths.ts';

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
  expect(said).toContain('systemctl did not answer within 300 ms: a mount with much to push may still be ending');
  expect(said).not.toContain('no manager was asked');
});
