import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemKind, whyUnsupported } from '../../src/base/supported-system.ts';
import { missingFile, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

test('this system is supported, or the tests would not run', () => {
  expect(whyUnsupported(systemKind())).toBeNull();
  expect(systemKind().glibc).toMatch(/^2\.\d+$/);
});

test.each([
  ['x64', '2.34'],
  ['arm64', '2.40'],
  ['x64', '3.0'],
])('%s with glibc %s is supported', (architecture, glibc) => {
  expect(whyUnsupported({ architecture, glibc })).toBeNull();
});

test.each([
  ['x64', '2.31', 'glibc', 'glibc 2.34 or later is needed, and this system has glibc 2.31'],
  ['x64', '2.4', 'glibc', 'glibc 2.34 or later is needed, and this system has glibc 2.4'],
  ['arm64', null, 'glibc', 'glibc 2.34 or later is needed, and this system has another C library'],
  ['riscv64', '2.40', 'architecture', 'processors of the kind riscv64 are not supported'],
])('%s with glibc %s is not supported', (architecture, glibc, what, sentence) => {
  expect(whyUnsupported({ architecture, glibc })).toEqual({ what, sentence });
});

/** LMDB's build sets the minimum. That of our addon, which this machine may have built, is checked before a release (`publishable.mjs`). */
const LMDB = join(PROJECT, `node_modules/@lmdb/lmdb-linux-${process.arch}/node.napi.glibc.node`);
testUnless(missingFile(LMDB))('the minimum of glibc is that of the build of LMDB', async () => {
  const { newestGlibc } = await import(new URL('../../scripts/package/publishable.mjs', import.meta.url).href);
  const minor: number = newestGlibc(readFileSync(LMDB));

  expect(whyUnsupported({ architecture: 'x64', glibc: `2.${minor}` })).toBeNull();
  expect(whyUnsupported({ architecture: 'x64', glibc: `2.${minor - 1}` })).not.toBeNull();
});
