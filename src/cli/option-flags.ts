import { type Command, Option } from 'commander';
import { type LoadedOptions, loadOptions } from '../config/load.ts';
import { envNameOf, OPTIONS, type OptionKey, type Options, optionRows } from '../config/options.ts';
import type { Paths } from '../config/paths.ts';
import type { DashOGiven } from '../mount/dash-o-options.ts';
import { exitCode } from '../mount/exit-codes.ts';
import { configurationFile } from '../mount/settled-options.ts';

/** Adds every option of the table to a command. Values stay texts here: config/load validates all sources in the same way. */
export function addMountOptions(command: Command): Command {
  for (const [, option] of optionRows()) {
    const flags = option.placeholder === null ? option.flag : `${option.flag} ${option.placeholder}`;
    const standard = option.placeholder === null || option.default === '' ? '' : ` [${option.default}]`;
    const given = flagOf(flags, `${option.help}${standard} (${envNameOf(option)})`).hideHelp(option.hidden);
    if (option.isRepeatable === true)
      given.argParser((text: string, before?: string) => (before === undefined ? text : `${before},${text}`));
    command.addOption(given);
  }
  return command;
}

/** `--no-notify` is a switch of its own. Commander would take it for the negation of `--notify`, which is then on by default. */
function flagOf(flags: string, help?: string): Option {
  const option = new Option(flags, help);
  option.negate = false;
  return option;
}

/** The options of the table that were given on the command line, as texts. */
export function givenFlags(command: Command): Partial<Record<OptionKey, string>> {
  const flags: Partial<Record<OptionKey, string>> = {};
  for (const [key, option] of optionRows()) {
    const value: unknown = command.getOptionValue(flagOf(option.flag).attributeName());
    if (typeof value === 'string' || typeof value === 'boolean') flags[key] = String(value);
  }
  return flags;
}

/** The options from this command line or its environment, as texts: another process, such as a service manager, does not have them. */
export function givenHere({ sources, texts }: LoadedOptions): Partial<Record<OptionKey, string>> {
  const isHere = ([key]: (typeof rows)[number]): boolean => sources[key] === 'flag' || sources[key] === 'environment';
  const rows = optionRows();
  return Object.fromEntries(rows.filter(isHere).map(([key]) => [key, texts[key]]));
}

/** The options that this command line sets, by flags or `-o`, as flags. */
export function flagsOfCommandLine({ options, sources, texts }: LoadedOptions): readonly string[] {
  const given = optionRows().filter(([key]) => sources[key] === 'flag');
  return flagsThatSet(Object.fromEntries(given.map(([key]) => [key, texts[key]])), options);
}

/** Flags for another process, perhaps in another working directory. @param given what to set, as texts @param options the parsed values */
export function flagsThatSet(given: Partial<Record<OptionKey, string>>, options: Options): string[] {
  const texts = options.logFile === null ? given : { ...given, logFile: options.logFile };
  return Object.entries(texts).flatMap(([key, value]) => {
    const { flag, placeholder } = OPTIONS[key as OptionKey];
    // The environment can switch an option off, which no flag can.
    if (placeholder === null) return options[key as OptionKey] === true ? [flag] : [];
    return [`${flag}=${value}`];
  });
}

/**
 * The options of a mount from all sources; `words`: the parsed `-o`.
 *
 * @throws UsageError naming every mistake with its place, or a config.toml that cannot be read
 */
export function mountOptions(
  command: Command,
  env: Readonly<Record<string, string | undefined>>,
  paths: Paths,
  words?: DashOGiven,
): Options {
  return loadedOptions(command, env, paths, words).options;
}

/** The options with the source of each. @throws as `mountOptions` */
export function loadedOptions(
  command: Command | null,
  env: Readonly<Record<string, string | undefined>>,
  paths: Paths,
  words?: DashOGiven,
): LoadedOptions {
  const flags = command === null ? {} : givenFlags(command);
  return loadOptions(
    {
      flags,
      env,
      file: configurationFile(paths),
      ...(words !== undefined && { words: words.options }),
      ...(words?.problem != null && { problems: [words.problem] }),
    },
    exitCode('usage'),
  );
}
