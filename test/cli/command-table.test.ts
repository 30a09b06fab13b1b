import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { cfsMountProgram } from '../../src/cli/cfs-mount-program.ts';
import { cfsProgram } from '../../src/cli/cfs-program.ts';
import type { CommandContext } from '../../src/cli/command-context.ts';
import type { CommandRow } from '../../src/cli/command-row.ts';
import { CFS_MOUNT, commandRows, GROUPS } from '../../src/cli/command-table.ts';
import { usageOf } from '../../src/cli/reference.ts';
import { pathsOf } from '../../src/config/paths.ts';

/** The one table that programs, completion, manual pages and README.md are made from. */

const rows: readonly CommandRow[] = [...commandRows(), CFS_MOUNT];

test('a flag has one form everywhere: what is a switch in one command takes no value in another', () => {
  const forms = new Map<string, Set<string>>();
  for (const { flags } of rows)
    for (const { flag, placeholder } of flags)
      forms.set(flag, new Set([...(forms.get(flag) ?? []), placeholder ?? 'switch']));

  expect([...forms].filter(([, seen]) => seen.size > 1).map(([flag, seen]) => [flag, ...seen])).toEqual([]);
});

test('a command has one row, its words have a group, and its summary is a sentence part that fits a line of help', () => {
  const names = commandRows().map(({ name }) => name);

  expect(new Set(names).size).toBe(names.length);
  for (const { name, summary } of rows) {
    expect(summary, name).toMatch(/^[a-z`].*[^.]$/s);
    expect(summary.length, name).toBeLessThanOrEqual(100);
    const group = name.split(' ').slice(0, -1).join(' ');
    if (group !== '') expect(group in GROUPS || names.some((other) => other === group), name).toBe(true);
  }
});

const context = { paths: pathsOf({ HOME: '/home/x' }), clock: systemClock, env: {} } as unknown as CommandContext;

test('each row is a command of the program, with its arguments and flags and no others', async () => {
  const program = await cfsProgram(context, () => {});

  for (const row of commandRows()) {
    const command = row.name
      .split(' ')
      .reduce((at, word) => at?.commands.find((known) => known.name() === word) as typeof program, program);

    expect(command.registeredArguments.map((argument) => [argument.name(), argument.required])).toEqual(
      row.args.map(({ name, isRequired }) => [name, isRequired]),
    );
    if (row.mountOptions !== true)
      expect(command.options.map(({ long, short }) => long ?? short)).toEqual(row.flags.map(({ flag }) => flag));
  }
});

test('the program for a first word has the commands of that word alone, as the program of all commands has them', async () => {
  const helpOf = (program: Command): string[] =>
    program.commands.flatMap((each) => [each.helpInformation(), ...helpOf(each)]);
  const all = await cfsProgram(context, () => {});
  const rest = new Map(
    all.commands.map((command) => [command.name(), [command.helpInformation(), ...helpOf(command)]]),
  );

  for (const name of new Set(commandRows().map(({ name }) => name.split(' ', 1)[0] as string))) {
    const one = await cfsProgram(context, () => {}, [name, 'anything']);
    expect(one.commands.map((command) => command.name())).toEqual([name]);
    expect(helpOf(one)).toEqual(rest.get(name));
  }
  for (const words of [['--help'], ['help', 'status'], ['stauts']])
    expect((await cfsProgram(context, () => {}, words)).commands.length).toBe(all.commands.length);
});

test('a row is shown as one would type it', () => {
  const row = commandRows().find(({ name }) => name === 'sync') as CommandRow;

  expect(usageOf(row)).toBe('cfs sync [--wait] [--timeout <duration>] [--account <name>] [path]');
});

test('the version of both programs includes that of Node, which a package may bring', async () => {
  const shown = /^\d+\.\d+\.\d+\S* \(Node \d+\.\d+\.\d+\)$/;

  expect((await cfsProgram(context, () => {})).version()).toMatch(shown);
  expect(cfsMountProgram({ env: {}, print: () => {}, warn: () => {} }, async () => {}).version()).toMatch(shown);
});
