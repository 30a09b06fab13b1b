import { expect, test } from 'vitest';
import { textOf } from '../imports.ts';

const { whyUnpublishable } = await import(new URL('../../scripts/package/publishable.mjs', import.meta.url).href);
const SOUND = { version: '1.2.3', repository: { url: 'somewhere' } };

test('a package with both addons, a repository and a changelog section may be published', () => {
  expect(whyUnpublishable(SOUND, () => true, '## [1.2.3] - 2026-01-01')).toEqual([]);
});

test('each thing that is missing is named', () => {
  const reasons = whyUnpublishable({ version: '1.2.3', private: true }, (target: string) => target === 'linux-x64', '');

  expect(reasons.join('\n')).toMatch(/private\n.*repository.*\n.*section for 1\.2\.3\n.*linux-arm64/);
});

test('the manifest limits an installation to the systems that have an addon, and asks before it is published', () => {
  const manifest = JSON.parse(textOf('package.json'));

  expect(manifest).toMatchObject({ os: ['linux'], cpu: ['x64', 'arm64'] });
  expect(manifest).not.toHaveProperty('private');
  expect(manifest).not.toHaveProperty('optionalDependencies');
  expect(manifest.keywords.length).toBeGreaterThan(3);
  expect(manifest.scripts.prepublishOnly).toBe('node scripts/package/publishable.mjs');
});
