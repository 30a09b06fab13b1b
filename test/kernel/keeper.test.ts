import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { HANDOVER_BYTES } from '../../src/kernel/handover-state.ts';
import {
  HANDOVER_LAYOUT,
  KEEPER_DEVICE,
  KEEPER_LINE,
  KEEPER_MEMORY,
  KEEPER_SOCKET,
  keeperOf,
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
  expect([HANDOVER_LAYOUT, HANDOVER_BYTES]).toEqual([2, 145_526_976]);
});

test('a process without a keeper finds none, and others learn their generation', () => {
  expect(keeperOf({})).toBeNull();
  expect(keeperOf({ CFS_KEEPER: '3 4242 1700000000000 1\n' })).toEqual({
    ...{ generation: 3, predecessor: 4242, diedMs: 1_700_000_000_000, upgrades: 1 },
  });
  expect(keeperOf({ CFS_KEEPER: 'standby' })).toBe('standby');
});
