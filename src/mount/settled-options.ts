import { readFileSync } from 'node:fs';
import { UsageError } from '../base/errors.ts';
import { loadOptions, type OptionInputs } from '../config/load.ts';
import type { Options } from '../config/options.ts';
import type { Paths } from '../config/paths.ts';
import { exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';

/** The options without a command line. @throws UsageError naming every mistake with its place, or an unreadable config.toml */
export function settledOptions(env: Readonly<Record<string, string | undefined>>, paths: Paths): Options {
  return loadOptions({ flags: {}, env, file: configurationFile(paths) }, exitCode('usage')).options;
}

/** config.toml; null if it does not exist. @throws UsageError for an unreadable file: it may contain `read-only` or a mask */
export function configurationFile({ configFile: path }: Paths): OptionInputs['file'] {
  try {
    return { path, text: readFileSync(path, 'utf8') };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw new UsageError(`${visible(path)} cannot be read (${code})`, exitCode('usage'), { cause: error });
  }
}
