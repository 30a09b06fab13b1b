import { type Command, Option } from 'commander';
import { UsageError } from '../base/errors.ts';
import { parseBytes, parseDuration } from '../config/units.ts';
import { visible } from '../mount/mount-event.ts';

/** The parsed arguments and flags of a command, by the names in its row of `command-table`. */
export class Invocation {
  /** For options of a mount (`option-flags`). */
  readonly command: Command;
  readonly #args: readonly (string | undefined)[];

  constructor(command: Command, args: readonly (string | undefined)[]) {
    this.command = command;
    this.#args = args;
  }

  /** The n-th argument; null if it was left out. */
  argument(index: number): string | null {
    return this.#args[index] ?? null;
  }

  /** The n-th argument, which the row requires. */
  required(index: number): string {
    const value = this.#args[index];
    if (value === undefined) throw new Error(`${this.command.name()}: argument ${index} is not required by its row`);
    return value;
  }

  /** The value of `--flag`; null if it has neither a value nor a default. */
  text(flag: string): string | null {
    const value = this.#value(flag);
    return typeof value === 'string' ? value : null;
  }

  /** Whether a switch was given. */
  has(flag: string): boolean {
    return this.#value(flag) === true;
  }

  /** The values of a flag that may be repeated. */
  texts(flag: string): readonly string[] {
    const value = this.#value(flag);
    return Array.isArray(value) ? (value as string[]) : [];
  }

  /** Milliseconds. @throws UsageError naming the flag */
  duration(flag: string): number | null {
    return this.parsed(flag, parseDuration);
  }

  /** @throws UsageError naming the flag */
  bytes(flag: string): number | null {
    return this.parsed(flag, parseBytes);
  }

  /** @throws UsageError naming the flag */
  whole(flag: string): number | null {
    return this.parsed(flag, (text) => {
      if (!/^\d{1,9}$/.test(text)) throw new RangeError(`"${text}" is not a whole number`);
      return Number(text);
    });
  }

  /** 0 to 65535. @throws UsageError naming the flag */
  port(flag: string): number | null {
    return this.parsed(flag, (text) => {
      if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) throw new RangeError(`"${visible(text)}" is not a port`);
      return Number(text);
    });
  }

  #value(flag: string): unknown {
    // A flag of `serve` may precede the name of its subcommand.
    return this.command.optsWithGlobals<Record<string, unknown>>()[new Option(flag).attributeName()];
  }

  /** The value of the flag, parsed by `parse`; null if it is not given. @throws UsageError naming the flag, for a RangeError of `parse` */
  parsed<T>(flag: string, parse: (text: string) => T): T | null {
    const text = this.text(flag);
    if (text === null) return null;
    try {
      return parse(text);
    } catch (error) {
      throw new UsageError(`${flag}: ${(error as Error).message}`, 2, { cause: error });
    }
  }
}
