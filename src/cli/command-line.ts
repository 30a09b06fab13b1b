import { fstatSync, writeFileSync } from 'node:fs';
import { isatty } from 'node:tty';
import { Argument, Command, CommanderError, Option } from 'commander';
import { exitCode } from '../mount/exit-codes.ts';
import { runToExit } from '../mount/failure.ts';
import { visible } from '../mount/mount-event.ts';
import type { CommandOutput } from './command-output.ts';
import type { CommandRow } from './command-row.ts';

/** A program or subcommand that reports mistakes as one line, and throws instead of ending the process. */
export function newCommand(name: string): Command {
  return new Command(name)
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(`${name}: ${oneLine(text)}\n`) })
    .helpOption('-h, --help', 'show this help')
    .showHelpAfterError(false);
}

/** commander puts its guesses ("Did you mean …?") on a second line,and quotes typed words unescaped. */
function oneLine(text: string): string {
  const sentence = text.replace(/^error: /, '').trim();
  const choice =
    /^(?:command-argument value|option '.*' argument) '(.*)' is invalid(?: for argument '.*')?\. Allowed choices are (.*)\.$/s.exec(
      sentence,
    );
  if (choice !== null) return visible(`${choice[1]} is not one of: ${choice[2]}`);
  return visible(sentence.replace(/\n(?=\(Did you mean)/, ' '));
}

/** Gives a command the arguments and flags of its row, without the options of a mount (`option-flags`). */
export function addRow(command: Command, row: CommandRow): Command {
  command.description(row.summary);
  if (row.usage !== undefined) command.usage(row.usage);
  for (const { name, isRequired, isRepeated, help, choices } of row.args) {
    const words = isRepeated === true ? `${name}...` : name;
    const argument = new Argument(isRequired ? `<${words}>` : `[${words}]`, help);
    command.addArgument(choices === undefined ? argument : argument.choices(choices));
  }
  for (const { flag, short, placeholder, default: standard, isRepeated, help, choices } of row.flags) {
    const names = short === undefined ? flag : `${short}, ${flag}`;
    const option = new Option(placeholder === null ? names : `${names} ${placeholder}`, help);
    if (choices !== undefined) option.choices(choices);
    if (standard !== undefined) option.default(standard);
    if (isRepeated === true)
      option.argParser((text, before: readonly string[] | undefined) => [...(before ?? []), text]);
    command.addOption(option);
  }
  return command;
}

/** Parses the command line, runs the command, and sets the exit code. */
export async function runProgram(program: Command, argv: readonly string[], codeOf: () => number): Promise<void> {
  await runToExit(program.name(), async () => {
    try {
      await program.parseAsync([...argv]);
    } catch (error) {
      if (!(error instanceof CommanderError)) throw error;
      // Help and version are successes. Every other error of commander is a wrong command line, which it has already printed.
      return error.exitCode === 0 ? exitCode('ok') : exitCode('usage');
    }
    return codeOf();
  });
}

/**
 * Standard output and standard error of this process. `whyUnwritten`: the error because of which output is lost; null for none.
 * The command still runs to its end; only its output is lost.
 */
export function terminalOutput(): CommandOutput & { readonly whyUnwritten: () => Error | null } {
  const { stderr } = process;
  const isFile = isFileOutput();
  let failed: Error | null = null;
  const printToFile = (text: string): void => {
    try {
      // Not `process.stdout`: on a full disk it would drop the rest of a partial write silently.
      writeFileSync(STDOUT, text);
    } catch (error) {
      failed ??= error as Error;
    }
  };
  return {
    print: isFile ? printToFile : (text) => void process.stdout.write(text),
    whyUnwritten: () => failed,
    warn: (text) => void stderr.write(text),
    redraw: stderr.isTTY ? (text) => void stderr.write(`\r\x1b[K${text.slice(0, (stderr.columns || 80) - 1)}`) : null,
  };
}

const STDOUT = 1;

/** Whether it is a file, not a pipe, socket or terminal: Node writes to files synchronously. */
function isFileOutput(): boolean {
  try {
    const stats = fstatSync(STDOUT);
    return stats.isFile() || (stats.isCharacterDevice() && !isatty(STDOUT));
  } catch {
    return false;
  }
}
