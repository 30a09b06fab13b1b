import { constants } from 'node:os';
import { expect, test } from 'vitest';
import {
  ApiError,
  errorOfRecord,
  errorToRecord,
  FsError,
  ProtocolError,
  SignInError,
  StorageError,
  systemCodeOf,
  TransportError,
  toFsError,
} from '../../src/base/errors.ts';
import { checked, errnoOf } from '../../src/base/native.ts';
import { failureOf } from '../../src/mount/failure.ts';
import { storageErrorOf } from '../../src/store/disk.ts';

test.each([
  [new FsError('ENOTEMPTY'), 'ENOTEMPTY'],
  [new ApiError(403, 'PUT /file/1', 'no'), 'EACCES'],
  [new ApiError(413, 'GET /file/1/data', 'no'), 'EIO'],
  [new ApiError(409, 'GET /folder/1/contents', 'no'), 'EIO'],
  [new ApiError(400, 'POST /folder/1', 'no'), 'EIO'],
  [new ApiError(404, 'GET /file/1', 'no'), 'EIO'],
  [new ApiError(401, 'GET /file/1', 'no'), 'EIO'],
  [new TransportError('cut'), 'ETIMEDOUT'],
  [new TransportError('refused', { neverSent: true }), 'ETIMEDOUT'],
  [new SignInError('sign in again'), 'EIO'],
  [new ProtocolError('half a document'), 'EIO'],
  [new StorageError('no room', { full: true }), 'ENOSPC'],
  [new StorageError('broken'), 'EIO'],
  [storageErrorOf(Object.assign(new Error('file too large'), { code: 'EFBIG' }), 'write failed'), 'EFBIG'],
  [new StorageError('cannot open', { cause: Object.assign(new Error(), { code: 'EMFILE' }) }), 'ENFILE'],
  [new DOMException('gave up', 'AbortError'), 'EINTR'],
  [new DOMException('too long', 'TimeoutError'), 'ETIMEDOUT'],
  [new TypeError('our bug'), 'EIO'],
  ['not even an error', 'EIO'],
] as const)('%s is told as %s', (thrown, errno) => {
  expect(toFsError(thrown).errno).toBe(errno);
});

test('an errno that Node has no name for is known by its number', () => {
  const { EDQUOT, ESTALE } = constants.errno;
  // As fs throws them: of a call that waits, of a promise.
  const thrown = Object.assign(new Error('UNKNOWN: unknown error, write'), { errno: -EDQUOT, code: 'UNKNOWN' });
  const rejected = Object.assign(new Error('x'), { errno: -ESTALE, code: `Unknown system error -${ESTALE}` });

  expect([systemCodeOf(thrown), systemCodeOf(rejected)]).toEqual(['EDQUOT', 'ESTALE']);
  expect(toFsError(storageErrorOf(thrown, 'write failed')).errno).toBe('ENOSPC');
  expect(() => checked('reserve room', -EDQUOT)).toThrow(expect.objectContaining({ errno: 'EDQUOT' }));
  expect([systemCodeOf({ errno: -2, code: 'ENOENT' }), systemCodeOf(null), errnoOf(-95)]).toEqual([
    ...['ENOENT', undefined, 'ENOTSUP'],
  ]);
});

test('no failure that is not about a name is ever told as "not there"', () => {
  for (let status = 300; status < 600; status++) {
    expect(toFsError(new ApiError(status, 'GET /x', 'no')).errno).not.toBe('ENOENT');
  }
});

test('the number of an errno is the one of this system', () => {
  expect(new FsError('ENOSPC').code).toBe(constants.errno.ENOSPC);
});

/** A failed system call on `path`, as Node throws it. */
function systemError(code: 'EMFILE' | 'ENOSPC' | 'EEXIST' | 'EFBIG', path: string): Error {
  const errno = -constants.errno[code];
  return Object.assign(new Error(`${code}: mkdir '${path}'`), { errno, code, syscall: 'mkdir', path });
}

test.each([
  systemError('ENOSPC', '/store'),
  systemError('EEXIST', '/store'),
  systemError('EMFILE', '/store'),
  new StorageError('no more blocks', { cause: systemError('EFBIG', '/store/blocks') }),
  new StorageError('/store: cannot be written', { full: true, cause: systemError('ENOSPC', '/store') }),
  new FsError('EIO', 'unexpected failure', { cause: systemError('EMFILE', '/store') }),
  new TypeError('a defect'),
])('%s keeps its errno and its exit code over the port', (error) => {
  const arrived = errorOfRecord(structuredClone(errorToRecord(error)));

  expect(toFsError(arrived).errno).toBe(toFsError(error).errno);
  expect(failureOf(arrived)).toEqual(failureOf(error));
});
