import type { Said } from '../../web/page-call.ts';
import type { CommandContext } from '../command-context.ts';
import type { CommandOutput } from '../command-output.ts';
import { ServiceWait } from '../service-wait.ts';

/** Limit for the service's answers to one click. */
const WAIT_MS_MAX = 60_000;

export interface Captured extends CommandOutput, Pick<CommandContext, 'paths' | 'clock' | 'env'> {
  readonly wait: ServiceWait;
}

/** Runs a command for the page. What it prints is the answer; its failures are thrown. */
export async function captured(
  context: Pick<CommandContext, 'paths' | 'clock' | 'env'>,
  run: (deps: Captured) => Promise<number>,
  waitMsMax: number | null = WAIT_MS_MAX,
): Promise<Said> {
  const lines: string[] = [];
  const print = (text: string): void => void lines.push(text);
  // The notice of a long wait is for terminals: the page shows that the click is under way.
  const wait = new ServiceWait({ clock: context.clock, warn: () => {} }, waitMsMax);
  const { paths, clock, env } = context;
  const code = await run({ paths, clock, env, print, warn: print, redraw: null, wait });
  return { said: lines.join('').trimEnd(), isDone: code === 0 };
}
