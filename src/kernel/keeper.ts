import { programBesideAddon } from '../base/native.ts';
import { type KernelAddon, loadKernelAddon } from './kernel-addon.ts';

/**
 * The keeper of a mount with `--continuity` (native-deps/keeper): the parent of the mounting process. It starts a successor when the thread
 * that answers the kernel ends. handover.h repeats the numbers below; `test/kernel/keeper.test.ts` compares them.
 */
export interface Keeper {
  /** How many mounting processes preceded this one. */
  readonly generation: number;
  /** The process before this one. Its thread that answered has ended, perhaps not all of it. 0 for the first. */
  readonly predecessor: number;
  /** When the keeper noticed the end of that thread, ms since the epoch; 0 for the first. */
  readonly diedMs: number;
  /** How many of the predecessors ended in favour of another version. */
  readonly upgrades: number;
}

/**
 * The layout of what one process leaves to the next: the region and the rows in the keeper's memory, and the messages of the keeper. Raise it
 * with every change of them. A version continues the mount of another only if both have the same.
 */
export const HANDOVER_LAYOUT = 5;

export const KEEPER_SOCKET = 4;
export const KEEPER_MEMORY = 5;
export const KEEPER_DEVICE = 6;
/** The same socket as KEEPER_SOCKET, for the main thread (keeper-line.ts). */
export const KEEPER_LINE = 7;

const VARIABLE = 'CFS_KEEPER';
/** `prepare` is followed by a command (keeper-line.ts). */
export const MESSAGES = { serves: 'S', ready: 'R', letsGo: 'E', prepare: 'P', waits: 'W', handsOver: 'H' } as const;

/** The keeper that started this process; `standby` if it is to wait for its turn; null without a keeper. */
export function keeperOf(env: Readonly<Record<string, string | undefined>>): Keeper | 'standby' | null {
  const place = env[VARIABLE] ?? '';
  return place === 'standby' ? place : placeIn(place);
}

/** The place of a process among those of its mount, as the keeper writes it; null if it is none. */
export function placeIn(text: string): Keeper | null {
  const [generation, predecessor, diedMs, upgrades] = text.trim().split(' ').map(Number);
  if (generation === undefined || predecessor === undefined || diedMs === undefined || upgrades === undefined)
    return null;
  return { generation, predecessor, diedMs, upgrades };
}

/** The keeper's program; null if it was not built. */
export function keeperProgram(): string | null {
  return programBesideAddon('cfs-keeper');
}

/**
 * Sends a message to the keeper. Without a keeper any more, the mount goes on without a successor.
 *
 * @param device the descriptor of the connection, with the first `serves`
 */
export function tellKeeper(
  message: keyof typeof MESSAGES,
  device = -1,
  addon: Pick<KernelAddon, 'sendMessage'> = loadKernelAddon(),
): void {
  addon.sendMessage(KEEPER_SOCKET, MESSAGES[message].charCodeAt(0), device);
}
