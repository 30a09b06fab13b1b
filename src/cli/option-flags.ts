import { existsSync, readFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { type LoadedOptions, loadOptions } from '../config/load.ts';
import { envNameOf, type OptionKey, type Options, optionRows } from '../config/options.ts';
import type { Paths } from '../config/paths.ts';
import { exitCode } from './exit-codes.ts';

/** Adds every option of the table to a command. Values stay texts here: config/load judges all sources alike. */
export function addMountOptions(command: Command): Command {
  for (const [, option] of optionRows()) {
    const flags = option.placeholder === null ? option.flag : `${option.flag} ${option.placeholder}`;
    const standard = option.placeholder === null ? '' : ` [${option.default}]`;
    command.addOption(new Option(flags, `${option.help}${standard} (${envNameOf(option)})`).hideHelp(option.hidden));
  }
  return command;
}

/** The options of the table that were given on the command line, as texts. */
export function givenFlags(command: Command): Partial<Record<OptionKey, string>> {
  const flags: Partial<Record<OptionKey, string>> = {};
  for (const [key, option] of optionRows()) {
    const value: unknown = command.getOptionValue(new Option(option.flag).attributeName());
    if (typeof value === 'string' || typeof value === 'boolean') flags[key] = String(value);
  }
  return flags;
}

/** The options of a mount from all their sources; `words`: what `-o` set, weaker than a flag. @throws UsageError naming every mistake with its place */
export function mountOptions(
  command: Command,
  env: Readonly<Record<string, string | undefined>>,
  paths: Paths,
  words: Partial<Record<OptionKey, string>> = {},
): Options {
  return loadedOptions(command, env, paths, words).options;
}

/** The options as they are without a command line. @throws as `mountOptions` */
export function settledOptions(env: Readonly<Record<string, string | undefined>>, paths: Paths): Options {
  return loadedOptions(null, env, paths).options;
}

/** The options with what is known of where each comes from. @throws as `mountOptions` */
export function loadedOptions(
  command: Command | null,
  env: Readonly<Record<string, string | undefined>>,
  paths: Paths,
  words: Partial<Record<OptionKey, string>> = {},
): LoadedOptions {
  const flags = { ...words, ...(command === null ? {} : givenFlags(command)) };
  const file = existsSync(paths.configFile)
    ? { path: paths.configFile, text: readFileSync(paths.configFile, 'utf8') }
    : null;
  return loadOptions({ flags, env, file }, exitCode('usage'));
}
