import { expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import { pushFailureOf } from '../../src/sync/push-failure.ts';

/** An error of the store, as it wraps one of the system. */
const storageError = (code: string, full = false): StorageError =>
  new StorageError('could not write', { cause: Object.assign(new Error(code), { code }), full });

test.each([
  ['a full disk', storageError('ENOSPC', true)],
  ['a read-only disk', storageError('EROFS')],
  ['a lack of descriptors', storageError('EMFILE')],
])('%s delays a push; the change is not parked', (_what, error) => {
  expect(pushFailureOf(error)).toMatchObject({ type: 'retry', trouble: 'this' });
});

test('a store that cannot read its own data parks the change as damaged', () => {
  expect(pushFailureOf(storageError('EIO'))).toMatchObject({ type: 'park', reason: 'local-damage' });
});
