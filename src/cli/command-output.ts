/** The output of a command. */
export interface CommandOutput {
  readonly print: (text: string) => void;
  readonly warn: (text: string) => void;
  /** A line that the next one replaces; null where standard error is not a terminal. */
  readonly redraw: ((text: string) => void) | null;
}
