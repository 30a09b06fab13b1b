import type { Command } from 'commander';
import { versionWithNode } from '../base/program-version.ts';
import { COMMAND_ACTIONS } from './command-actions.ts';
import type { CommandContext } from './command-context.ts';
import { addRow, newCommand } from './command-line.ts';
import { commandRows, GROUPS } from './command-table.ts';
import { Invocation } from './invocation.ts';

/**
 * The commander program of `cfs`, from the command table. `ended` gets the exit code of the command.
 *
 * @param words of the command line. If the first one is the name of a command or group, the program has no others: to add all of them takes as
 *   long as `cfs status` itself
 */
export async function cfsProgram(
  context: CommandContext,
  ended: (code: number) => void,
  words: readonly string[] = [],
): Promise<Command> {
  const program = newCommand('cfs')
    .description('Manages the accounts, mounts and files of cfs-mount.')
    .version(versionWithNode(), '-V, --version', 'show the version, and that of Node')
    .enablePositionalOptions();
  for (const row of rowsFor(words[0])) {
    const names = row.name.split(' ');
    const parent = names.slice(0, -1).reduce((at, _name, depth) => group(at, names.slice(0, depth + 1)), program);
    const command = addRow(parent.command(names.at(-1) ?? row.name), row);
    if (row.mountOptions === true) (await import('./option-flags.ts')).addMountOptions(command);
    command.action(async (...given: unknown[]) => {
      // commander passes the arguments, then its own object of options, then the command.
      const args = given.slice(0, -2) as (string | undefined)[];
      ended(await COMMAND_ACTIONS[row.name](new Invocation(command, args), context));
    });
  }
  return program;
}

function rowsFor(first: string | undefined): ReturnType<typeof commandRows> {
  const named = commandRows().filter(({ name }) => name.split(' ', 1)[0] === first);
  return named.length > 0 ? named : commandRows();
}

function group(parent: Command, names: readonly string[]): Command {
  const name = names.at(-1) ?? '';
  const known = parent.commands.find((command) => command.name() === name);
  return known ?? parent.command(name).description(GROUPS[names.join(' ')] ?? '');
}
