import { getEventListeners } from 'node:events';
import { describe, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import type { RemoteVersion } from '../../src/base/resources.ts';

import type { ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import { accountLines } from '../../src/cli/commands/accounts.ts';
import { configLines } from '../../src/cli/commands/config-show.ts';
import { prometheusText } from '../../src/cli/commands/metrics.ts';
import { watch } from '../../src/cli/commands/status-watch.ts';
import { chooseItem, type TrashItem, trashLines } from '../../src/cli/commands/trash.ts';
import { chooseVersion, namedVersions, parseVersionOf } from '../../src/cli/commands/version-choice.ts';
import { versionLines } from '../../src/cli/commands/versions.ts';
import { loadOptions } from '../../src/config/load.ts';
import { pathsOf } from '../../src/config/paths.ts';
import type { MountMetrics } from '../../src/control/mount-metrics.ts';
import { failureOf } from '../../src/mount/failure.ts';
import type { AccountState } from '../../src/mount/running-mounts.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

/** From what is known to the lines that a person, a script or Prometheus reads. */

const SAVED_MS = Date.UTC(2026, 10, 20, 13, 5, 11, 250);

function version(minutesAgo: number, sizeBytes: number, complete = true): RemoteVersion {
  const lastModifiedMs = SAVED_MS - minutesAgo * 60_000;
  return { url: `v${minutesAgo}` as VersionUrl, sizeBytes, complete, lastModifiedMs, mediaType: null };
}

describe('versions', () => {
  test('versions are named by the second of their save; others of that second get a suffix', () => {
    const versions = [version(0, 3), version(0, 2), version(0, 1, false), version(0, 1), version(9, 0)];

    expect(namedVersions(versions).map(({ name, version }) => [name, version.sizeBytes])).toEqual([
      ['2026-11-20T13.05.11Z-3', 3],
      ['2026-11-20T13.05.11Z-2', 2],
      ['2026-11-20T13.05.11Z', 1],
      ['2026-11-20T12.56.11Z', 0],
    ]);
    expect(namedVersions([{ ...version(0, 1), lastModifiedMs: null }])[0]?.name).toBe('time-unknown');
  });

  test('versions are listed with their sizes, and an unpushed one is marked', () => {
    const located = { path: 'a\nb', kind: 'file', sizeBytes: 1, resource: 'r', isPending: true } as const;

    expect(versionLines(located, namedVersions([version(0, 2048), version(1, 7)]))).toEqual([
      '2026-11-20T13.05.11Z     2 KiB  latest',
      '2026-11-20T13.04.11Z       7 B',
      'the local version is not on the service yet: it becomes the next version',
    ]);
    expect(versionLines({ ...located, isPending: false }, [])).toEqual(['no version of a\\x0ab is on the service yet']);
  });

  test('a file is named with one behind the last @, unless that is its name', () => {
    const exists = (path: string): boolean => path === 'me@home.txt';

    expect(parseVersionOf('a@b@latest', exists)).toEqual({ file: 'a@b', version: 'latest' });
    expect(parseVersionOf('me@home.txt', exists)).toEqual({ file: 'me@home.txt', version: null });
    expect(parseVersionOf('me@home.txt@-1', exists)).toEqual({ file: 'me@home.txt', version: '-1' });
    expect(parseVersionOf('@a', exists)).toEqual({ file: '@a', version: null });
    expect(parseVersionOf('plain', exists)).toEqual({ file: 'plain', version: null });
  });

  test('one is chosen by its name, by the beginning of that, or counted back', () => {
    const versions = namedVersions([version(0, 3), version(0, 2), version(9, 1), version(70, 0)]);
    const chosen = (wanted: string): number => chooseVersion(versions, wanted, 'f').version.sizeBytes;

    expect(chosen('2026-11-20T13.05.11Z')).toBe(2); // exact, though another begins so
    expect(chosen('2026-11-20T13:05:11Z-2')).toBe(3);
    expect(chosen('2026-11-20T12')).toBe(1);
    expect(chosen('latest')).toBe(3);
    expect(chosen('-0')).toBe(3);
    expect(chosen('-3')).toBe(0);
    for (const wanted of ['-4', '2025', '', 'v0']) expect(() => chosen(wanted), wanted).toThrow(/no version/);
    expect(() => chosen('2026-11')).toThrow(/4 versions of f begin with 2026-11/);
    expect(() => chooseVersion([], 'latest', 'f')).toThrow(/no version on the service yet/);
  });
});

describe('the trash', () => {
  const item = (id: string, name: string, kind: 'file' | 'folder' = 'file'): TrashItem => {
    const url = `https://host/${kind}/:sc:5000:${id}` as ResourceUrl;
    if (kind === 'folder') return { id, entry: { kind, url, name } };
    const file = { sizeBytes: 1536, lastModifiedMs: SAVED_MS, mediaType: null, presentOnServer: true };
    return { id, entry: { kind, url, name, ...file } };
  };
  const items = [item('5000_12', 'report.odt'), item('5000_7', 'new\nline', 'folder'), item('5000_8', 'report.odt')];

  test('the trash is listed with a line per item and visible control characters', () => {
    expect(trashLines(items.slice(0, 2))).toEqual([
      '5000_12   1.5 KiB  2026-11-20 13:05  report.odt',
      '5000_7     folder                    new\\x0aline',
    ]);
    expect(trashLines([])).toEqual(['the trash is empty']);
  });

  /** More than a call takes arguments: a trash is as long as what was deleted since it was emptied. */
  test('may be of any length', () => {
    const many = Array.from({ length: 600_000 }, () => item('5000_7', 'folder', 'folder'));
    expect(trashLines(many)).toHaveLength(many.length);
  });

  test('a thing is meant by its id, or by its name where that is there once', () => {
    expect(chooseItem(items, '5000_8').id).toBe('5000_8');
    expect(chooseItem(items, 'new\nline').id).toBe('5000_7');
    expect(() => chooseItem(items, 'report.odt')).toThrow(/2 items .*\(5000_12, 5000_8\)/);
    expect(() => chooseItem(items, 'x\ny')).toThrow('no item in the trash has the name or id x\\x0ay');
  });
});

test('accounts are shown by their address, with where they are mounted and the name that --account takes', () => {
  const state = { name: '17@host', username: 'ann@example.com', origin: 'https://host', socketPath: '', silent: false };
  const mounted = { ...state, name: '18@host', status: { directory: '/home/ann/Cl\toud' } } as AccountState;

  expect(accountLines([{ ...state, status: null }, mounted, { ...state, status: null, silent: true }])).toEqual([
    'ann@example.com at https://host, not mounted',
    '  --account 17@host',
    'ann@example.com at https://host, mounted at /home/ann/Cl\\x09oud',
    '  --account 18@host',
    'ann@example.com at https://host, mounted, does not answer',
    '  --account 17@host',
  ]);
  expect(accountLines([])).toEqual(['not signed in: run cfs login URL']);
});

/** [S-config-1] */
test('each option is shown with its value and the source that sets it', () => {
  const paths = pathsOf({ HOME: '/home/ann' });
  const loaded = loadOptions({
    flags: {},
    env: { CFS_DIR_TTL: '10s', CFS_SETTLE: '2s' },
    file: { path: paths.configFile, text: 'dir-ttl = "5s"\ntransfers = 4\nread-only = true\n' },
  });
  const flagged = loadOptions({ flags: { settleMs: '1s' }, env: { CFS_SETTLE: '9s' }, file: null });
  const line = (lines: readonly string[], option: string): string | undefined =>
    lines.find((text) => text.startsWith(`${option} `))?.replace(/ +/g, ' ');

  expect(line(configLines(loaded, paths), 'dir-ttl')).toBe('dir-ttl 10s CFS_DIR_TTL');
  expect(line(configLines(loaded, paths), 'transfers')).toBe(`transfers 4 ${paths.configFile}`);
  expect(line(configLines(loaded, paths), 'read-only')).toBe(`read-only true ${paths.configFile}`);
  expect(line(configLines(loaded, paths), 'drain')).toBe('drain 5s');
  expect(line(configLines(flagged, paths), 'settle')).toBe('settle 1s --settle');
  expect(configLines(loaded, paths).join('\n')).not.toContain('mask-features');
});

describe('metrics', () => {
  const metrics: MountMetrics = {
    uptimeMs: 1500,
    isOnline: true,
    operations: [{ operation: 'read', count: 5, failures: 1, totalUs: 2500, latencyLog2Us: [1, 0, 3, 0, 1] }],
    operationsWaiting: 2,
    reads: { hits: 9, misses: 1 },
    bytes: { fetched: 10, pushed: 20 },
    requests: { sent: 7, repeated: 1 },
    queue: { pending: 3, pendingBytes: 30, parked: 1, postponed: 4, transfersRunning: 1, transfersWaiting: 2 },
    cache: { usedBytes: 100, limitBytes: 1000, unsyncedBytes: 30 },
    quota: null,
  };
  const text = prometheusText([
    { account: 'a"b\\c\nd', metrics },
    { account: 'other', metrics: { ...metrics, isOnline: false } },
  ]);

  test('latencies are cumulative buckets in seconds that end with all of them', () => {
    const read = text.split('\n').filter((line) => line.startsWith('cfs_operation_seconds') && line.includes('other'));

    expect(read).toEqual([
      'cfs_operation_seconds_bucket{account="other",operation="read",le="0.000001"} 1',
      'cfs_operation_seconds_bucket{account="other",operation="read",le="0.000002"} 1',
      'cfs_operation_seconds_bucket{account="other",operation="read",le="0.000004"} 4',
      'cfs_operation_seconds_bucket{account="other",operation="read",le="0.000008"} 4',
      'cfs_operation_seconds_bucket{account="other",operation="read",le="+Inf"} 5',
      'cfs_operation_seconds_sum{account="other",operation="read"} 0.0025',
      'cfs_operation_seconds_count{account="other",operation="read"} 5',
    ]);
  });

  test('every line is one that Prometheus reads, and every family is told once, with all mounts', () => {
    const lines = text.trimEnd().split('\n');
    const sample = /^[a-z_]+\{account="(?:a\\"b\\\\c\\nd|other)"(?:,[a-z]+="[^"]*")*\} -?[\d.e+-]+$/;

    for (const line of lines)
      expect(line, line).toMatch(line.startsWith('#') ? /^# (HELP|TYPE) cfs_[a-z_]+ \S/ : sample);
    const types = lines.filter((line) => line.startsWith('# TYPE')).map((line) => line.split(' ')[2]);
    expect(new Set(types).size).toBe(types.length);
    expect(lines).toContain('cfs_online{account="other"} 0');
    expect(lines).toContain('cfs_reads_total{account="other",result="hit"} 9');
    expect(lines).toContain('cfs_changes{account="other",state="parked"} 1');
    expect(lines).toContain('cfs_bytes_total{account="other",direction="up"} 20');
    expect(lines).toContain('cfs_pushes_postponed_total{account="other"} 4');
  });
});

describe('watching', () => {
  async function watched(isTerminal: boolean, said: readonly string[]): Promise<string[]> {
    const clock = new ManualClock();
    const printed: string[] = [];
    const done = new AbortController();
    const left: unknown[] = [];
    let looks = 0;
    const look = async (): Promise<string> => {
      left.push(...getEventListeners(done.signal, 'abort'));
      if (looks === said.length - 1) done.abort();
      return said[looks++] ?? '';
    };
    const ended = watch({ clock, print: (text) => void printed.push(text), isTerminal }, look, done.signal);
    while (looks < said.length) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      clock.advance(1_000);
    }
    await ended;
    // Of eleven that the looks before left Node would warn, on the terminal that is watched.
    expect(left).toEqual([]);
    return printed;
  }

  test.each(['b', 'a line that is longer than the terminal is wide'])(
    'at a terminal each look takes the place of the last one (%s)',
    async (line) => {
      const printed = await watched(true, [`a\n${line}\n`, `c\n${line}\n`, 'd\n']);
      expect(screenOf(printed.slice(0, 2).join(''))).toEqual(['c', line.slice(0, COLUMNS), '']);
      expect(screenOf(printed.join(''))).toEqual(['d', '']);
    },
  );

  test('elsewhere only what is new is printed', async () => {
    expect(await watched(false, ['a\n', 'a\n', 'b\n', 'b\n'])).toEqual(['a\n', 'b\n']);
  });
});

test('what the system says about a file is one sentence with its name made visible', () => {
  const failed = (code: string): unknown =>
    Object.assign(new Error(`${code}: whatever`), { code, syscall: 'open', path: '/a\nb' });

  expect(failureOf(failed('ENOSPC'))).toEqual({
    sentence: '/a\\x0ab: no space is left on the disk (ENOSPC)',
    exitCode: 11,
  });
  expect(failureOf(failed('ENOENT')).exitCode).toBe(13);
  expect(failureOf(failed('EROFS')).exitCode).toBe(2);
  expect(failureOf(failed('EWHATEVER')).sentence).toMatch(/^unexpected failure/);
  expect(failureOf(new UsageError('as it is', 9))).toEqual({ sentence: 'as it is', exitCode: 9 });
});

const COLUMNS = 20;

/** What a terminal shows after that: it goes up, clears below, and wraps or cuts what is longer than a row. */
function screenOf(text: string): readonly string[] {
  const rows = [''];
  let at = 0;
  let wraps = true;
  for (const [piece, up, mode] of text.matchAll(/\p{Cc}\[(?:(\d+)A|J|\?7([lh]))|./gsu)) {
    if (up !== undefined) at -= Number(up);
    else if (mode !== undefined) wraps = mode === 'h';
    else if (piece === '\x1b[J') rows.splice(at, rows.length, '');
    else if (piece === '\n') rows[++at] ??= '';
    else if ((rows[at] ?? '').length < COLUMNS) rows[at] += piece;
    else if (wraps) rows[++at] = piece;
  }
  return rows;
}
