import { expect, test } from 'vitest';
import { unknownVariables } from '../../src/config/variables.ts';

test('a misspelt variable is named with the one that was meant', () => {
  const said = unknownVariables({ CFS_SETLE: '1s', CFS_DIR_TLT: '1s', CFS_CACHESIZE: '1GiB' });

  expect(said).toEqual([
    'CFS_CACHESIZE has no effect: there is no such variable (did you mean CFS_CACHE_SIZE?)',
    'CFS_DIR_TLT has no effect: there is no such variable (did you mean CFS_DIR_TTL?)',
    'CFS_SETLE has no effect: there is no such variable (did you mean CFS_SETTLE?)',
  ]);
});

test('one that is like none is named without a guess', () => {
  expect(unknownVariables({ CFS_WHATEVER_ELSE: '' })).toEqual([
    'CFS_WHATEVER_ELSE has no effect: there is no such variable',
  ]);
});

test('variables of options, of cfs login and of other programs are not named', () => {
  expect(unknownVariables({ CFS_SETTLE: '1s', CFS_PASSWORD: 'x', XCFS_SETLE: 'x', CFS_GONE: undefined })).toEqual([]);
});
