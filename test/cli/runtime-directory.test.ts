import { chownSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { loadOptions } from '../../src/config/load.ts';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import { mountRequest } from '../../src/mount/mount-preparation.ts';
import { testUnless } from '../harness/requirement.ts';

/** Where a mount makes its control socket: its own session's directory, and no other one's. */

const { options } = loadOptions({ flags: {}, env: {}, file: null });
const isRoot = process.getuid?.() === 0;
let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'cfs-runtime-'));
});

afterEach(() => rmSync(home, { recursive: true, force: true }));

function socketPath(runtimeDirectory: string): {
  readonly chosen: string;
  readonly usual: string;
  readonly boot: string;
} {
  const paths = pathsOf({ HOME: home, XDG_RUNTIME_DIR: runtimeDirectory });
  const files = accountPaths(paths, '17@example.com');
  const flags = { directory: '/mnt', account: '17@example.com', foreground: false };
  const { socketPath: chosen } = mountRequest({ paths, options }, flags);
  return { chosen, usual: files.socketPath, boot: files.bootSocketPath };
}

test.each(['there', 'missing'] as const)('the runtime directory of a session that is %s', (how) => {
  const runtime = join(home, 'run');
  if (how === 'there') mkdirSync(runtime);

  const { chosen, usual } = socketPath(runtime);

  expect(chosen).toBe(usual);
});

test('beside the account where the directory is that of whoever called su(1)', () => {
  const runtime = isRoot ? join(home, 'run') : '/';
  if (isRoot) {
    mkdirSync(runtime);
    chownSync(runtime, 1000, 1000);
  }

  const { chosen, boot } = socketPath(runtime);

  expect(chosen).toBe(boot);
});

testUnless(isRoot ? 'a user other than root' : null)(
  'beside the account where there is none, and none can be made',
  () => {
    const { chosen, boot } = socketPath('/no-session');

    expect(chosen).toBe(boot);
  },
);
