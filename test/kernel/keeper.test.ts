import { spawnSync } from 'node:child_process';
import { closeSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { HANDOVER_BYTES } from '../../src/kernel/handover-state.ts';
import {
  HANDOVER_LAYOUT,
  KEEPER_DEVICE,
  KEEPER_LINE,
  KEEPER_MEMORY,
  KEEPER_SOCKET,
  keeperOf,
  keeperProgram,
  tellKeeper,
} from '../../src/kernel/keeper.ts';

test('the descriptors and messages of the keeper are those of handover.h', () => {
  const source = readFileSync(new URL('../../native-deps/fuse-kernel/handover.h', import.meta.url), 'utf8');
  const defined = (name: string): string | undefined => new RegExp(`#define ${name} '?(\\w+)`).exec(source)?.[1];
  const sent: unknown[] = [];
  const addon = { sendMessage: (...message: unknown[]) => sent.push(message) };

  expect(['SOCKET', 'MEMORY', 'DEVICE', 'LINE'].map((name) => Number(defined(`KEEPER_${name}`)))).toEqual([
    ...[KEEPER_SOCKET, KEEPER_MEMORY, KEEPER_DEVICE, KEEPER_LINE],
  ]);
  tellKeeper('serves', 9, addon);
  tellKeeper('ready', -1, addon);
  tellKeeper('letsGo', -1, addon);
  tellKeeper('prepare', -1, addon);
  tellKeeper('waits', -1, addon);
  tellKeeper('handsOver', -1, addon);
  const codeOf = (name: string): number | undefined => defined(name)?.charCodeAt(0);
  expect(sent).toEqual([
    [KEEPER_SOCKET, codeOf('KEEPER_SERVES'), 9],
    [KEEPER_SOCKET, codeOf('KEEPER_READY'), -1],
    [KEEPER_SOCKET, codeOf('KEEPER_LETS_GO'), -1],
    [KEEPER_SOCKET, codeOf('KEEPER_PREPARE'), -1],
    [KEEPER_SOCKET, codeOf('KEEPER_WAITS'), -1],
    [KEEPER_SOCKET, codeOf('KEEPER_HANDS_OVER'), -1],
  ]);
});

test('the handover state has the size of its layout', () => {
  // Another size: raise HANDOVER_LAYOUT, so that no other version continues a mount with it.
  expect([HANDOVER_LAYOUT, HANDOVER_BYTES]).toEqual([5, 147_919_104]);
});

test('a process without a keeper finds none, and others learn their generation', () => {
  expect(keeperOf({})).toBeNull();
  expect(keeperOf({ CFS_KEEPER: '3 4242 1700000000000 1\n' })).toEqual({
    ...{ generation: 3, predecessor: 4242, diedMs: 1_700_000_000_000, upgrades: 1 },
  });
  expect(keeperOf({ CFS_KEEPER: 'standby' })).toBe('standby');
});

/** sizeof(pthread_mutex_t): the identity follows. Zeros are a free mutex, and 1 in the first byte a locked one. */
const MUTEX_BYTES = process.arch === 'arm64' ? 48 : 40;
const keeper = keeperProgram();

test.skipIf(keeper === null).each([
  { whose: 'of the same mount', identity: 'this mount', place: /^1 0 \d{13} 0\n\/dev\/null\n$/ },
  { whose: 'of another mount', identity: 'that mount', place: /^0 0 0 0\nnone\n$/ },
])('a keeper continues with the stored memory and connection $whose', ({ identity, place }) => {
  const { stdout, status } = runKeeper({ identity, isServed: false });

  expect([stdout, status]).toEqual([expect.stringMatching(place), 0]);
});

test.skipIf(keeper === null)('a keeper starts no process while one of an earlier keeper still serves', () => {
  const { stdout, signal } = runKeeper({ identity: 'this mount', isServed: true, timeout: 1_000 });

  expect([stdout, signal]).toEqual(['', 'SIGKILL']);
});

/** A keeper of `identity` with the stored memory of `this mount`. */
function runKeeper({ identity, isServed, timeout }: { identity: string; isServed: boolean; timeout?: number }) {
  const path = join(tmpdir(), `cfs-memory-${process.pid}`);
  const bytes = Buffer.alloc(8192);
  bytes.write('this mount', MUTEX_BYTES);
  bytes[0] = isServed ? 1 : 0;
  writeFileSync(path, bytes);
  const [device, memory] = [openSync('/dev/null', 'r+'), openSync(path, 'r+')];
  try {
    const program = `printf %s "$CFS_KEEPER"; readlink /proc/self/fd/${KEEPER_DEVICE} || echo none`;
    return spawnSync(keeper as string, ['sh', '-c', program], {
      stdio: ['ignore', 'pipe', 'ignore', 'ignore', device, memory],
      env: { ...process.env, CFS_KEEPER_STORED: '1', CFS_KEEPER_IDENTITY: identity, CFS_KEEPER_MANAGER: '' },
      encoding: 'utf8',
      killSignal: 'SIGKILL',
      timeout,
    });
  } finally {
    closeSync(device);
    closeSync(memory);
    rmSync(path);
  }
}
