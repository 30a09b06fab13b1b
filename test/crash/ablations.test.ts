import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PROJECT } from '../imports.ts';
import { ABLATIONS } from './ablations.ts';

test('each ablation of --continuity names code that is there once, and a test that is there', () => {
  for (const { safeguard, file, from, to, test: path, names } of ABLATIONS) {
    const source = readFileSync(join(PROJECT, file), 'utf8');
    expect(source.split(from).length - 1, safeguard).toBe(1);
    expect(to, safeguard).not.toBe(from);
    expect(existsSync(join(PROJECT, path)), safeguard).toBe(true);
    expect(readFileSync(join(PROJECT, path), 'utf8'), safeguard).toContain(names ?? '');
  }
});
