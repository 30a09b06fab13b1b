import type { Clock } from '../../base/clock.ts';

/** Interval between two status calls of `--watch`. */
const LOOK_EVERY_MS = 1_000;

/** DECAWM of xterm-like terminals: a line longer than the terminal takes one row, as `rewind` assumes. */
const CUT = '\x1b[?7l';
const WRAP = '\x1b[?7h';

/**
 * Prints the text of `look` until `signal`: at a terminal over the previous text, elsewhere once per
 * change. Lines longer than the terminal are cut.
 */
export async function watch(
  deps: { readonly clock: Clock; readonly print: (text: string) => void; readonly isTerminal: boolean },
  look: () => Promise<string>,
  signal: AbortSignal,
): Promise<void> {
  let last: string | null = null;
  while (!signal.aborted) {
    const text = await look();
    if (deps.isTerminal) deps.print(`${rewind(last)}${CUT}${text}${WRAP}`);
    else if (text !== last) deps.print(text);
    last = text;
    if (signal.aborted) return;
    await new Promise<void>((resolve) => {
      const go = (): void => {
        cancel();
        signal.removeEventListener('abort', go);
        resolve();
      };
      const cancel = deps.clock.after(LOOK_EVERY_MS, go);
      signal.addEventListener('abort', go, { once: true });
    });
  }
}

/** Moves to the first column of the line where `text` began, and erases it. */
function rewind(text: string | null): string {
  if (text === null) return '';
  const lines = text.split('\n').length - 1;
  return lines === 0 ? '' : `\x1b[${lines}A\x1b[J`;
}
