import { describe, expect, test } from 'vitest';
import {
  ApiError,
  FsError,
  ProtocolError,
  SignInError,
  StorageError,
  TransportError,
  UsageError,
} from '../../src/base/errors.ts';
import { programVersion } from '../../src/base/program-version.ts';
import { progressText } from '../../src/cli/commands/progress-line.ts';
import { statusText } from '../../src/cli/commands/status.ts';
import { NoMountError } from '../../src/control/client.ts';
import type { MountEvent } from '../../src/control/event-model.ts';
import type { ConnectionStatus, Status } from '../../src/control/status-model.ts';
import { EXIT_CODES, exitCode } from '../../src/mount/exit-codes.ts';
import { failureOf } from '../../src/mount/failure.ts';
import { eventLine } from '../../src/mount/mount-event.ts';
import {
  LAYOUTS,
  type MountRequest,
  mountEnvironment,
  parseMountAnswer,
  readMountRequest,
} from '../../src/mount/mount-request.ts';
import type { AccountState } from '../../src/mount/running-mounts.ts';
import { textOf } from '../imports.ts';

function mounted(pending: number, state: ConnectionStatus['state'], reason: string | null): MountEvent {
  return { type: 'mounted', directory: '/c', account: 'ann', pending, connection: { state, sinceMs: 0, reason } };
}

describe('events', () => {
  test.each<[MountEvent, string]>([
    [mounted(0, 'online', null), 'mounted ann at /c'],
    [mounted(2, 'online', null), 'mounted ann at /c; 2 changes from an earlier mount are pushed now'],
    [mounted(0, 'connecting', null), 'mounted ann at /c (the service has not answered yet)'],
    [mounted(0, 'offline', 'the service does not answer'), 'mounted ann at /c (offline: the service does not answer)'],
    [
      mounted(2, 'sign-in-needed', 'the service refuses the saved sign-in'),
      'mounted ann at /c (sign in again: run cfs login URL); 2 changes from an earlier mount wait',
    ],
    [
      { type: 'uploaded', path: 'report.txt', version: 4, sizeBytes: 12 * 1024 },
      'uploaded report.txt (version 4, 12 KiB)',
    ],
    [{ type: 'uploaded', path: 'a', version: null, sizeBytes: 0 }, 'uploaded a (0 B)'],
    [{ type: 'deleted', path: 'a', to: 'trash' }, 'moved a to the trash'],
    [
      {
        ...{ type: 'mounted', directory: '/c', account: 'ann', pending: 1, isPaused: true },
        connection: { state: 'online', sinceMs: 0, reason: null },
      },
      'mounted ann at /c; 1 change from an earlier mount is kept: pushing is paused',
    ],
    [{ type: 'received', change: 'changed', path: 'a/b', count: 1 }, 'a/b was changed elsewhere'],
    [
      { type: 'received', change: 'deleted', path: '', count: 12 },
      '12 entries of the top folder were deleted elsewhere',
    ],
    [
      { type: 'evicted', reason: 'cache-reserve', bytes: 2 * 1024 ** 2, files: 1 },
      'removed 2 MiB of cached copies of 1 file: the disk has less room than --cache-reserve',
    ],
    [{ type: 'limited', up: 1024 ** 2, down: null }, 'limited: up 1 MiB/s, down no limit'],
    [{ type: 'paused', untilMs: null }, 'pushing is paused; changes are kept on this machine'],
    [
      { type: 'quota-low', usedBytes: 19 * 1024 ** 3, limitBytes: 20 * 1024 ** 3 },
      'the storage of the account is nearly full: 1 GiB of 20 GiB left; uploads are refused when it is full',
    ],
    [
      { type: 'parked', path: 'a', reason: 'over the limit' },
      'parked a: over the limit (kept on this machine; see cfs status)',
    ],
    [{ type: 'online', offlineMs: 125_000 }, 'online again after 2 min'],
    [{ type: 'unmounted', directory: '/c', pending: 0, busy: false }, 'unmounted /c'],
    [
      { type: 'unmounted', directory: '/c', pending: 1, busy: true },
      'unmounted /c (it was busy: programs that still use it get errors); 1 change is kept here and pushed after the next mount',
    ],
  ])('%j', (event, line) => {
    expect(eventLine(event)).toBe(line);
  });

  test('a name cannot draw on the terminal', () => {
    expect(eventLine({ type: 'folder-created', path: 'a\n\u001b]0;x\u0007\u009b' })).toBe(
      'created folder a\\x0a\\x1b]0;x\\x07\\x9b',
    );
  });
});

describe('failures', () => {
  test.each<[Error, number]>([
    [new UsageError('no', 4), 4],
    [new NoMountError('ENOENT', ''), exitCode('notMounted')],
    [new SignInError('refused'), exitCode('signIn')],
    [new TransportError('refused'), exitCode('unreachable')],
    [new ApiError(503, 'GET /user', 'busy'), exitCode('unreachable')],
    [new ProtocolError('odd'), exitCode('unreachable')],
    [new DOMException('The operation was aborted due to timeout', 'TimeoutError'), exitCode('unreachable')],
    [new StorageError('full', { full: true }), exitCode('store')],
    [new FsError('EIO', 'bad'), exitCode('failure')],
    [new TypeError('x is undefined\n  at y'), exitCode('failure')],
  ])('%s has a sentence of one line and its code', (error, code) => {
    const failure = failureOf(error);

    expect(failure.exitCode).toBe(code);
    expect(failure.sentence).not.toMatch(/\n|^$/);
  });

  test('no two exit codes are the same', () => {
    const codes = Object.values(EXIT_CODES).map(({ code }) => code);

    expect(new Set(codes).size).toBe(codes.length);
    expect(codes.every((code) => code >= 0 && code < 126)).toBe(true); // from 126 on the shell speaks
  });
});

describe('the status for people', () => {
  const state: AccountState = {
    name: '17@host',
    username: 'ann@example.com',
    origin: 'https://host',
    socketPath: '/run/x',
    silent: false,
    status: {
      schema: 1,
      directory: '/home/ann/Cloud',
      account: { origin: 'https://host', username: 'ann@example.com' },
      pid: 42,
      version: programVersion(),
      storeLayout: 3,
      continuity: { deaths: 2, upgrades: 1, lastPauseMs: 800, hasStandby: false, layout: 1, requests: 'kept' },
      startedMs: 0,
      phase: 'running',
      connection: { state: 'offline', sinceMs: 10_000, reason: 'connection refused' },
      pending: {
        count: 12,
        bytes: 3 * 1024 ** 2,
        changes: Array.from({ length: 12 }, (_, i) => ({
          path: `f${i}`,
          kind: 'upload' as const,
          sizeBytes: 1,
          dueMs: null,
          attempts: i,
        })),
      },
      parked: [{ path: 'big', kind: 'upload', reason: 'the account is over its storage limit', sinceMs: 0 }],
      localFolders: ['left'],
      held: [
        { path: 'old', nodes: 7 },
        { path: '', nodes: 101 },
      ],
      pinned: [
        {
          path: 'holiday',
          files: 500,
          bytes: 2 * 1024 ** 3,
          filesHere: 20,
          bytesHere: 1024 ** 2,
          isComplete: false,
          trouble: null,
        },
      ],
      transfers: [{ path: 'film', direction: 'up', doneBytes: 1, totalBytes: 4, leftMs: null, bytesPerSecond: 2048 }],
      local: { count: 12, bytes: 6, paths: ['.DS_Store', 'desktop.ini'] },
      cache: { usedBytes: 0, limitBytes: 1024 ** 3, unsyncedBytes: 0 },
      quota: null,
    },
  };

  test('names the version that still runs after an upgrade, and says how to use the new one', () => {
    const { version: _, ...withoutVersion } = state.status as Status;
    const line = (status: Status) =>
      /^ {2}version .*\n/m.exec(statusText({ ...state, status }, 0).replace(/\n {13}/g, ' '))?.[0];
    const hint = `still runs; to use ${programVersion()}, unmount and mount again\n`;

    expect(line(state.status as Status)).toBe(undefined);
    expect(line({ ...withoutVersion, version: '0.0.9-1' })).toBe(`  version    0.0.9-1 ${hint}`);
    expect(line(withoutVersion)).toBe(`  version    an earlier version ${hint}`);

    const { store, handover } = LAYOUTS;
    const continuity = { deaths: 0, upgrades: 0, lastPauseMs: null, hasStandby: false, layout: handover };
    const other = { ...withoutVersion, version: '0.0.9-1', continuity, storeLayout: store };
    expect(line(other)).toBe(
      `  version    0.0.9-1 still runs; to use ${programVersion()}, run cfs-mount /home/ann/Cloud\n`,
    );
  });

  test('says what is pending, parked and under way, and for how long the service has been away', () => {
    const text = statusText(state, 70_000);

    expect(text.split('\n')).toEqual([
      'ann@example.com at https://host',
      '  mounted    /home/ann/Cloud (process 42)',
      '  service    offline for 60 s: connection refused',
      '  restarted  2 times after the death of the mount process',
      '  upgraded   1 time while mounted; the last pause took 800 ms',
      '  pending    12 (3 MiB), kept on this machine',
      '             upload f0',
      ...Array.from({ length: 9 }, (_, i) => `             upload f${i + 1}, attempt ${i + 2}`),
      '             and 2 more',
      '  parked     needs you (cfs retry, cfs discard): upload big: the account is over',
      '             its storage limit (for 70 s)',
      '  local      left: removed on the service; files in it exist only on this',
      '             machine',
      '  held back  7 removals in old, kept here: check the service, then run cfs',
      '             refresh --accept',
      '  held back  more than 100 removals in the top folder, kept here: check the',
      '             service, then run cfs refresh --accept',
      '  local      12 (6 B) only on this machine because of their names: .DS_Store,',
      '             desktop.ini and 10 more',
      '  pinned     holiday: 20 of 500 files, 1 MiB of 2 GiB',
      '  uploading  film 25 % of 4 B, 2 KiB/s',
      '  cache      0 B of 1 GiB',
    ]);
  });

  test('the service has everything only where nothing is parked either', () => {
    const pending = { count: 0, bytes: 0, changes: [] };
    const status = { ...(state.status as Status), pending };

    expect(statusText({ ...state, status }, 0)).toMatch(/^ {2}pending {4}nothing$/m);
    const everything = 'pending    nothing: the service has everything';
    const local = { count: 0, bytes: 0, paths: [] };
    expect(statusText({ ...state, status: { ...status, parked: [], local } }, 0)).toContain(everything);
    expect(statusText({ ...state, status: { ...status, parked: [] } }, 0)).not.toContain(everything);
  });

  /** [S-status-1] Both directions: a field that is gone must not stay in the document. */
  test('each field that scripts may read is in docs/commands.md', () => {
    const quota = { limitBytes: 2, usedBytes: 1, atMs: 1 };
    const waiting = [{ root: 'account', changes: 1, local: 2 }];
    const now = { quota, paused: { sinceMs: 1, untilMs: 2 }, limits: { up: 1, down: 2 } };
    const whole = { ...state, waiting, isForeign: true, status: { ...(state.status as Status), ...now } };
    const nullable = ['accounts[].status', 'accounts[].status.quota', 'accounts[].status.paused'];
    const documented = [...textOf('docs/commands.md').matchAll(/^\| `(accounts[^`]+)` \|/gm)].map(([, field]) => field);

    expect(new Set(fieldsOf({ accounts: [whole] }))).toEqual(
      new Set(documented.filter((field = '') => !nullable.includes(field))),
    );
  });

  test('what waits below a root that is not mounted is one line', () => {
    const text = statusText(state, 70_000, [{ root: 'account', changes: 1, local: 0 }]);
    expect(text.split('\n').at(-1)).toBe('  waiting    1 change below --root account, which is not mounted');
    expect(statusText({ ...state, status: null }, 0, [{ root: 'briefcase', changes: 3, local: 0 }])).toBe(
      'ann@example.com at https://host\n  not mounted\n  waiting    3 changes below --root briefcase, which the next mount pushes',
    );
  });

  test('cfs status counts local files without a mount, too', () => {
    const text = statusText({ ...state, status: null }, 0, [{ root: 'briefcase', changes: 0, local: 2 }]);
    expect(text.replace(/\s+/g, ' ')).toContain(
      'not mounted local 2 below --root briefcase only on this machine because of their names',
    );
  });

  test('an account that is not mounted says so', () => {
    expect(statusText({ ...state, status: null }, 0)).toBe('ann@example.com at https://host\n  not mounted');
    const silent = { ...state, status: null, silent: true };
    expect(statusText(silent, 0)).toContain('does not answer');
    expect(statusText(silent, 0, [], { pid: 42, logFile: '/a/mount.log' }).replace(/\s+/g, ' ')).toContain(
      'the process (42) does not answer: run cfs doctor; its log is /a/mount.log',
    );
  });
});

test('progress is told in changes, and in bytes where there are any', () => {
  expect(progressText({ doneChanges: 3, totalChanges: 10, doneBytes: 0, totalBytes: 0 })).toBe('3 of 10 changes');
  expect(progressText({ doneChanges: 3, totalChanges: 10, doneBytes: 1024, totalBytes: 2048 })).toBe(
    '3 of 10 changes, 1 KiB of 2 KiB',
  );
});

describe('what a launcher and a mount tell each other', () => {
  test('the request arrives as it was sent', () => {
    const request = { directory: '/home/ann/Cloud \u2603' } as MountRequest;

    expect(readMountRequest(mountEnvironment(request, 3))).toEqual(request);
    expect(readMountRequest({})).toBeNull();
  });

  test('a launcher accepts only a valid answer of the mount', () => {
    expect(parseMountAnswer('{"ready":true,"directory":"/c","pid":1}')).toEqual({
      ready: true,
      directory: '/c',
      pid: 1,
    });
    expect(parseMountAnswer('{"level":30}')).toBeNull();
    expect(parseMountAnswer('Segmentation fault')).toBeNull();
  });
});

/** The paths of all values: `accounts[].name`. */
function fieldsOf(value: unknown, path = ''): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((item) => fieldsOf(item, `${path}[]`));
  if (typeof value !== 'object' || value === null) return [path];
  return Object.entries(value).flatMap(([key, inner]) => fieldsOf(inner, path === '' ? key : `${path}.${key}`));
}
