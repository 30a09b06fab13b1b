import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { secretFromEnvironment } from '../../src/cli/secret-input.ts';

const directory = mkdtempSync(join(tmpdir(), 'cfs-secret-'));
const file = join(directory, 'password');
writeFileSync(file, 'from the file\nanother line\n');
afterAll(() => rmSync(directory, { recursive: true }));

test.each([
  [{}, null],
  [{ CFS_PASSWORD: '', CFS_PASSWORD_FILE: '' }, null],
  [{ CFS_PASSWORD: 'itself' }, 'itself'],
  [{ CFS_PASSWORD_FILE: file }, 'from the file'],
  [{ CFS_PASSWORD: '', CFS_PASSWORD_FILE: file }, 'from the file'],
])('of the environment %j the secret is %j', (env, secret) => {
  expect(secretFromEnvironment(env, 'CFS_PASSWORD')).toBe(secret);
});

test('a secret that is given twice, or whose file is missing or empty, is refused with the name of the variable', () => {
  const read = (env: Record<string, string>) => () => secretFromEnvironment(env, 'CFS_PASSWORD');
  const empty = join(directory, 'empty');
  writeFileSync(empty, '\n');

  expect(read({ CFS_PASSWORD: 'itself', CFS_PASSWORD_FILE: file })).toThrow(
    /CFS_PASSWORD and CFS_PASSWORD_FILE are both/,
  );
  expect(read({ CFS_PASSWORD_FILE: join(directory, 'none') })).toThrow(
    /^CFS_PASSWORD_FILE: cannot read .*none \(ENOENT\)/,
  );
  expect(read({ CFS_PASSWORD_FILE: empty })).toThrow(/^CFS_PASSWORD_FILE: .*empty is empty/);
});
