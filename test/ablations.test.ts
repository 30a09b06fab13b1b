import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { runCommand } from './harness/command.ts';
import { PROJECT } from './imports.ts';

/** Safeguards that are taken out of the sources one at a time, and the tests that fail then: these prove that the safeguards are needed. */
const ABLATIONS = [
  {
    name: 'names that a complete folder called absent are forgotten by its first listing',
    file: 'src/tree/listing-application.ts',
    text: '!wasListed && !this.#wasComplete.has(listing.folder)',
    by: '!wasListed',
    tests: ['test/tree/listing-merge.test.ts'],
    fails: ['are forgotten one by one by the first listing of a folder that was created here and elsewhere'],
  },
  {
    name: 'a first listing sends one notification for all of its names',
    file: 'src/tree/listing-application.ts',
    text: '!wasListed && !this.#wasComplete.has(listing.folder)',
    by: 'false',
    tests: ['test/tree/listing-merge.test.ts'],
    fails: ['are none in a first listing: one notification stands for all of its entries'],
  },
  {
    name: 'the kernel does not cache the absence of a name in a folder without a listing',
    file: 'src/fs/node-view.ts',
    text: 'isListed ? this.#entryTimeoutMs : 0',
    by: 'isListed ? this.#entryTimeoutMs : this.#entryTimeoutMs',
    tests: ['test/fs/node-view.test.ts'],
    fails: ['the kernel caches the absence of a name only in a folder that was listed'],
  },
] as const;

test.each(ABLATIONS)('without its safeguard a test fails: $name', async ({ file, text, by, tests, fails }) => {
  const folder = mkdtempSync(join(tmpdir(), 'cfs-ablation-'));
  const report = join(folder, 'report.json');
  const words = ['run', '--config', 'test/ablated-run.ts', '--reporter=json', `--outputFile.json=${report}`];
  await runCommand([process.execPath, join(PROJECT, 'node_modules/vitest/vitest.mjs'), '--root', PROJECT, ...words], {
    env: { CFS_ABLATION: JSON.stringify({ file, text, by, tests }) },
    anyExitCode: true,
    timeoutMs: 110_000,
  });
  const { testResults } = JSON.parse(readFileSync(report, 'utf8'));
  const all: readonly { status: string; title: string }[] = testResults.flatMap(
    ({ assertionResults }: { assertionResults: readonly unknown[] }) => assertionResults,
  );
  expect(all.filter(({ status }) => status === 'passed').length + fails.length).toBe(all.length);
  expect(all.filter(({ status }) => status === 'failed').map(({ title }) => title)).toEqual(fails);
  rmSync(folder, { recursive: true });
});
