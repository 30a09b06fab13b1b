import { describe, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { cacheBudget } from '../../src/config/cache-budget.ts';
import { loadOptions, type OptionInputs } from '../../src/config/load.ts';
import { envNameOf, fileKeyOf, type OptionKey, optionRows } from '../../src/config/options.ts';

const NOTHING: OptionInputs = { flags: {}, env: {}, file: null };

function file(text: string): OptionInputs['file'] {
  return { path: '/etc/cfs/config.toml', text };
}

function problemsOf(inputs: Partial<OptionInputs>): string[] {
  try {
    loadOptions({ ...NOTHING, ...inputs });
  } catch (error) {
    expect(error).toBeInstanceOf(UsageError);
    return (error as UsageError).message.split('\n');
  }
  return [];
}

test('without anything said, every option has its default', () => {
  const { options, sources } = loadOptions(NOTHING);

  expect(options).toMatchObject({
    dirTtlMs: 30_000,
    openWaitMs: 500,
    settleMs: 2000,
    drainMs: 5000,
    readTimeoutMs: 30_000,
    inlineMaxBytes: 32 * 1024,
    cacheBytes: null,
    transfers: 8,
    upLimitBytes: null,
    downLimitBytes: null,
    deletion: 'trash',
    readOnly: false,
    umask: 0o022,
    uid: null,
    maskFeatures: [],
  });
  expect(new Set(Object.values(sources))).toEqual(new Set(['default']));
});

describe('each source is weaker than the next', () => {
  const sources: OptionInputs = {
    file: file('settle = "3s"\ndir-ttl = "1min"\ntransfers = 4\nread-only = true'),
    env: { CFS_SETTLE: '4s', CFS_DIR_TTL: '2min' },
    flags: { settleMs: '5s' },
  };

  test('flag, environment, file, default', () => {
    const { options, sources: from } = loadOptions(sources);

    expect(options).toMatchObject({ settleMs: 5000, dirTtlMs: 120_000, transfers: 4, readOnly: true, drainMs: 5000 });
    expect(from).toMatchObject({ settleMs: 'flag', dirTtlMs: 'environment', transfers: 'file', drainMs: 'default' });
  });

  test('a switch that the file turns on can be turned off by the environment', () => {
    expect(loadOptions({ ...sources, env: { CFS_READ_ONLY: 'false' } }).options.readOnly).toBe(false);
  });
});

test('all problems are named at once, each with its place', () => {
  const problems = problemsOf({
    file: file('# mine\nsettle = "soon"\n\ncolour = "blue"\ndrain = [1]\n'),
    env: { CFS_CACHE_SIZE: 'huge' },
    flags: { transfers: '0', deletion: 'perhaps', dirTtlMs: '30' },
  });

  expect(problems.sort()).toEqual([
    '--delete: "perhaps" is not one of trash, forever',
    '--dir-ttl: "30" is not a duration such as 500ms, 5s or 2min',
    '--transfers: "0" is not a number from 1 to 64',
    '/etc/cfs/config.toml:2: settle: "soon" is not a duration such as 500ms, 5s or 2min',
    '/etc/cfs/config.toml:4: colour: there is no such option',
    '/etc/cfs/config.toml:5: drain: expected a string, a number, true or false',
    'CFS_CACHE_SIZE: "huge" is not a size such as 64MiB or 20GiB',
  ]);
});

test('a wrong value in the file is a problem even where a flag overrides it', () => {
  expect(problemsOf({ file: file('settle = "soon"'), flags: { settleMs: '1s' } })).toHaveLength(1);
});

/** [S-config-1] */
test('an invalid -o word is reported with all other errors, even if a flag overrides it', () => {
  const inputs = { words: { settleMs: 'soon', drainMs: '1s' }, flags: { settleMs: '1s', transfers: '0' } };

  expect(problemsOf({ ...inputs, problems: ['-o: unknown: frobnicate'] })).toEqual([
    '-o: unknown: frobnicate',
    '-o settle: "soon" is not a duration such as 500ms, 5s or 2min',
    '--transfers: "0" is not a number from 1 to 64',
  ]);
  const { options } = loadOptions({ ...NOTHING, words: { settleMs: '9s', drainMs: '7s' }, flags: { settleMs: '8s' } });
  expect(options).toMatchObject({ settleMs: 8_000, drainMs: 7_000 });
});

test.each(['0o077', '63', '0x3f', '22'])(
  'a mask that is the number %s in the file is refused: it may be meant as octal, or not',
  (mask) => {
    expect(problemsOf({ file: file(`umask = ${mask}`) })).toEqual([
      '/etc/cfs/config.toml:1: umask: expected a string in quotes, such as "022"',
    ]);
    expect(loadOptions({ ...NOTHING, file: file('umask = "077"') }).options.umask).toBe(0o077);
  },
);

test('a path with ~, which nobody has replaced, is no name of a folder', () => {
  expect(problemsOf({ file: file('log-file = "~/cfs.log"'), flags: { logFile: '~ann/cfs.log' } })).toEqual([
    '/etc/cfs/config.toml:1: log-file: "~/cfs.log": ~ is not expanded here; write the full path',
    '--log-file: "~ann/cfs.log": ~ is not expanded here; write the full path',
  ]);
  const { options } = loadOptions({ ...NOTHING, env: { CFS_LOG_FILE: '/var/log/~x/cfs.log' } });
  expect(options.logFile).toBe('/var/log/~x/cfs.log');
});

test('a file that is not TOML is refused with its line', () => {
  expect(problemsOf({ file: file('settle = "2s\ndrain = "1s"\n') })).toEqual([
    '/etc/cfs/config.toml:1: a quote is not closed',
  ]);
  expect(problemsOf({ file: file('settle = "2s"\ndrain = \n') })[0]).toMatch(/^\/etc\/cfs\/config\.toml:2: /);
});

test('every option has its own names, its default passes its own check, and a nonsense value does not', () => {
  const rows = optionRows();

  expect(new Set(rows.map(([, option]) => fileKeyOf(option))).size).toBe(rows.length);
  expect(rows.find(([key]) => key === ('dirTtlMs' satisfies OptionKey))?.[1]).toSatisfy(
    (option) => envNameOf(option) === 'CFS_DIR_TTL',
  );
  for (const [, option] of rows) {
    expect(() => option.parse(option.default), option.flag).not.toThrow();
    if (!['<list>', '<path>', '<pattern>'].includes(option.placeholder ?? '')) {
      expect(() => option.parse('\u2603 snow'), option.flag).toThrow(RangeError);
    }
  }
});

test('the cache takes a tenth of the free space, at most 20 GiB, and leaves a reserve', () => {
  const GIB = 1024 ** 3;
  const auto = { cacheBytes: null, cacheReserveBytes: null };

  expect(cacheBudget(auto, { freeBytes: 50 * GIB, totalBytes: 100 * GIB })).toEqual({
    cacheBytes: 5 * GIB,
    reserveBytes: GIB,
  });
  expect(cacheBudget(auto, { freeBytes: 900 * GIB, totalBytes: 1000 * GIB }).cacheBytes).toBe(20 * GIB);
  expect(cacheBudget(auto, { freeBytes: GIB, totalBytes: 10 * GIB }).reserveBytes).toBe(GIB / 2);
  expect(cacheBudget({ cacheBytes: 1, cacheReserveBytes: 0 }, { freeBytes: 0, totalBytes: 0 })).toEqual({
    cacheBytes: 1,
    reserveBytes: 0,
  });
});
