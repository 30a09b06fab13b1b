import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import type { ReadStream, WriteStream } from 'node:tty';
import { UsageError } from '../base/errors.ts';

/** Prompts at a terminal. */
export interface Prompt {
  /** @throws UsageError if the user ends the input without an answer */
  ask(question: string, options: { readonly hidden: boolean }): Promise<string>;
}

/** @returns null without a terminal */
export function terminalPrompt(input: ReadStream, output: WriteStream): Prompt | null {
  if (!input.isTTY || !output.isTTY) return null;
  return {
    ask: async (question, { hidden }) => {
      // readline echoes the input, so a hidden answer needs an output that discards it.
      const silence = new Writable({ write: (_chunk, _encoding, done) => done() });
      const reader = createInterface({ input, output: hidden ? silence : output, terminal: true, historySize: 0 });
      // After readline has taken over the terminal: before, the system echoes the input.
      output.write(`${question}: `);
      try {
        return await new Promise<string>((resolve, reject) => {
          reader.once('close', () => reject(new UsageError('no answer was given')));
          reader.once('SIGINT', () => reject(new UsageError('interrupted')));
          reader.once('line', resolve);
        });
      } finally {
        reader.close();
        if (hidden) output.write('\n');
      }
    },
  };
}
