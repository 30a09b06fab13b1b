import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { PICTURE_PACKAGE, pictureCommand, sharpBelow } from '../../src/server/picture-library.ts';
import { textOf } from '../imports.ts';

const directory = mkdtempSync(join(tmpdir(), 'cfs-pictures-'));
afterAll(() => rmSync(directory, { recursive: true }));

/** The directory after `npm install --prefix`, with a package that stands for sharp. */
function install(code: string): string {
  const prefix = mkdtempSync(join(directory, 'prefix-'));
  mkdirSync(join(prefix, 'node_modules/sharp'), { recursive: true });
  writeFileSync(join(prefix, 'node_modules/sharp/index.js'), code);
  return prefix;
}

test('the library is found in node_modules of the fixed directory', () => {
  const sharp = sharpBelow(install('module.exports = (source) => ({ source });'));

  expect(sharp?.('picture')).toEqual({ source: 'picture' });
});

test('a library that is missing or cannot be loaded counts as none', () => {
  expect(sharpBelow(directory)).toBe(null);
  expect(sharpBelow(install("throw new Error('no prebuilt libvips');"))).toBe(null);
});

test('the install command names the version that the tests run with', () => {
  const { devDependencies } = JSON.parse(textOf('package.json')) as { devDependencies: Record<string, string> };

  expect(PICTURE_PACKAGE).toBe(`sharp@${devDependencies.sharp}`);
  expect(pictureCommand('/place')).toBe(`sudo npm install --prefix /place ${PICTURE_PACKAGE}`);
});
