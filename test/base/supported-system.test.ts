import { expect, test } from 'vitest';
import { systemKind, whyUnsupported } from '../../src/base/supported-system.ts';

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
