import type { Command } from 'commander';
import { versionWithNode } from '../base/program-version.ts';
import { COMMAND_ACTIONS } from './command-actions.ts';
import type { CommandContext } from './command-context.ts';
import { addRow, newCommand } from './command-line.ts';
import { commandRows, GROUPS } from './command-table.ts';
import { Invocation } from './invocation.ts';

/** The commander program of `cfs`, from the command table. `ended` gets the exit code of the command. */
export function cfsProgram(context: CommandContext, ended: (code: number) => void): Command {
  const program = newCommand('cfs')
    .description('Manages the accounts, mounts and files of cfs-mount.')
    .version(versionWithNode(), '-V, --version', 'show the version, and that of Node')
    .enablePositionalOptions();
  for (const row of commandRows()) {
    const words = row.name.split(' ');
    const parent = words.slice(0, -1).reduce((at, _word, depth) => group(at, words.slice(0, depth + 1)), program);
    const command = addRow(parent.command(words.at(-1) ?? row.name), row);
    command.action(async (...given: unknown[]) => {
      // commander passes the arguments, then its own object of options, then the command.
      const args = given.slice(0, -2) as (string | undefined)[];
      ended(await COMMAND_ACTIONS[row.name](new Invocation(command, args), context));
    });
  }
  return program;
}

function group(parent: Command, words: readonly string[]): Command {
  const name = words.at(-1) ?? '';
  const known = parent.commands.find((command) => command.name() === name);
  return known ?? parent.command(name).description(GROUPS[words.join(' ')] ?? '');
}
