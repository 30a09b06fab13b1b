import { expect, test } from 'vitest';
import { textOf } from '../imports.ts';

const { whyUnpublishable } = await import(new URL('../../scripts/package/publishable.mjs', import.meta.url).href);
const addon = (glibc: string) => Buffer.from(`\0GLIBC_2.2.5\0GLIBC_${glibc}\0`);
const SOUND = { version: '1.2.3', repository: { url: 'somewhere' } };

test('a package with both addons, a repository and a changelog section may be published', () => {
  expect(whyUnpublishable(SOUND, () => addon('2.34'), '## [1.2.3] - 2026-01-01')).toEqual([]);
});

test('an addon that needs a newer glibc than promised is refused', () => {
  const reasons = whyUnpublishable(SOUND, () => addon('2.38'), '## [1.2.3] - 2026-01-01');

  expect(reasons).toHaveLength(2);
  expect(reasons[0]).toMatch(/linux-x64 needs glibc 2\.38/);
});

test('each thing that is missing is named', () => {
  const reasons = whyUnpublishable(
    { version: '1.2.3', private: true },
    (target: string) => (target === 'linux-x64' ? addon('2.17') : null),
    '',
  );

  expect(reasons.join('\n')).toMatch(/private\n.*repository.*\n.*section for 1\.2\.3\n.*linux-arm64/);
});

test('the manifest limits an installation to the systems that can mount, and asks before it is published', () => {
  const manifest = JSON.parse(textOf('package.json'));

  expect(manifest).toMatchObject({ os: ['linux', 'darwin'], cpu: ['x64', 'arm64'] });
  expect(manifest).not.toHaveProperty('private');
  expect(manifest).not.toHaveProperty('optionalDependencies');
  expect(manifest.keywords.length).toBeGreaterThan(3);
  expect(manifest.scripts.prepublishOnly).toBe('node scripts/package/publishable.mjs');
});
