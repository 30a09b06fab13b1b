import type { LoadedOptions } from '../../config/load.ts';
import { envNameOf, fileKeyOf, type OptionKey, optionRows } from '../../config/options.ts';
import type { Paths } from '../../config/paths.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';

/**
 * `cfs config show [mount flags]`: the effective value and the source of each option. Loading the options reports all wrong
 * values together.
 */
export function configShowCommand(
  deps: { readonly paths: Paths; readonly print: (text: string) => void },
  loaded: LoadedOptions,
  flags: { readonly json: boolean },
): number {
  if (flags.json) {
    const options = configRows(loaded, deps.paths).map(({ key, value, from }) => ({ option: key, value, from }));
    deps.print(`${JSON.stringify({ schema: 1, configFile: deps.paths.configFile, options }, null, 2)}\n`);
  } else for (const line of configLines(loaded, deps.paths)) deps.print(`${line}\n`);
  return exitCode('ok');
}

interface ConfigRow {
  readonly key: string;
  readonly value: string;
  readonly from: string;
}

/** The public rows of the option table. */
function configRows({ texts, sources }: LoadedOptions, paths: Paths): readonly ConfigRow[] {
  return optionRows()
    .filter(([, option]) => !option.hidden)
    .map(([key, option]) => ({
      key: fileKeyOf(option),
      value: texts[key],
      from: placeOf(sources[key], key, paths),
    }));
}

/** Option, value and source, in columns; the source of a default is left out. */
export function configLines(loaded: LoadedOptions, paths: Paths): readonly string[] {
  const rows = configRows(loaded, paths);
  const width = Math.max(...rows.map(({ key }) => key.length));
  const valueWidth = Math.min(20, Math.max(...rows.map(({ value }) => value.length)));
  return [
    ...rows.map(({ key, value, from }) =>
      `${key.padEnd(width)}  ${visible(value).padEnd(valueWidth)}  ${from === 'default' ? '' : visible(from)}`.trimEnd(),
    ),
    '',
    `config.toml: ${visible(paths.configFile)}`,
  ];
}

function placeOf(source: LoadedOptions['sources'][OptionKey], key: OptionKey, paths: Paths): string {
  const option = optionRows().find(([known]) => known === key)?.[1];
  if (option === undefined) return source;
  switch (source) {
    case 'default':
      return 'default';
    case 'file':
      return paths.configFile;
    case 'environment':
      return envNameOf(option);
    case 'flag':
      return option.flag;
    default:
      return source satisfies never;
  }
}
