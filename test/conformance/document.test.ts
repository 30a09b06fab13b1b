import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { NFS_CLIENT_LIMITS, NFS_LIMITS } from '../nfs/nfs-limits.ts';
import { DOCUMENTED_DIFFERENCES } from './documented-differences.ts';
import { SCENARIOS } from './suite.ts';

/** docs/conformance.md says what the suite says. CFS_WRITE_CONFORMANCE=1 writes it anew. */
const DOCUMENT = new URL('../../docs/conformance.md', import.meta.url);

test('docs/conformance.md lists every case that differs, with its reason', () => {
  const text = readFileSync(DOCUMENT, 'utf8');
  const now = [...sections()].reduce((document, [name, lines]) => replaced(document, name, lines), text);

  if (process.env.CFS_WRITE_CONFORMANCE === '1') writeFileSync(DOCUMENT, now);
  else expect(text).toBe(now);
});

function sections(): Map<string, string[]> {
  const all = Object.values(SCENARIOS).flat();
  const differing = Object.entries(DOCUMENTED_DIFFERENCES);
  const inProcess = all.filter(({ needs }) => needs.length === 0).length;
  const kept = differing.filter(([name]) => all.find((scenario) => scenario.name === name)?.needs.length === 0).length;
  const limits = Object.keys(NFS_LIMITS).length;
  const clientLimits = Object.keys(NFS_CLIENT_LIMITS).length;
  return new Map([
    [
      'counts',
      [
        '| over | cases | hold as on ext4 | differ |',
        '| --- | --- | --- | --- |',
        `| ext4 | ${all.length} | ${all.length} | 0 |`,
        `| a real mount | ${all.length} | ${all.length - differing.length} | ${differing.length}, listed below |`,
        `| a mount over NFS version 3, with the client of Linux 6.1 | ${all.length} | ${all.length - differing.length - clientLimits} | ${differing.length + clientLimits}: the same, and ${clientLimits} limits of the protocol or the client |`,
        `| in process (what needs no process and no other user) | ${inProcess} | ${inProcess - kept} | ${kept} of them |`,
        `| in process, over NFS version 3 | ${inProcess} | ${inProcess - kept - limits} | ${kept + limits}: the same, and ${limits} limits of the protocol |`,
      ],
    ],
    [
      'differences',
      ['| case | here |', '| --- | --- |', ...differing.map(([name, { reason }]) => `| ${name} | ${reason} |`)],
    ],
    [
      'topics',
      [
        '| topic | cases |',
        '| --- | --- |',
        ...Object.entries(SCENARIOS).map(([topic, scenarios]) => `| ${topic} | ${scenarios.length} |`),
      ],
    ],
  ]);
}

function replaced(document: string, name: string, lines: readonly string[]): string {
  const [from, to] = [`<!-- ${name}, written by test/conformance/document.test.ts -->\n`, `<!-- end of ${name} -->`];
  const [start, end] = [document.indexOf(from), document.indexOf(to)];
  if (start < 0 || end < start) throw new Error(`docs/conformance.md lacks the place for ${name}`);
  return `${document.slice(0, start + from.length)}${lines.map((line) => `${line}\n`).join('')}${document.slice(end)}`;
}
