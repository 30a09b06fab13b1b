import { parse as parseToml, TomlError } from 'smol-toml';
import { UsageError } from '../base/errors.ts';
import { envNameOf, fileKeyOf, type OptionKey, type Options, optionRows } from './options.ts';

/** The source of a value, for `cfs config show` and for problem reports. */
export type OptionSource = 'default' | 'file' | 'environment' | 'flag';

export interface LoadedOptions {
  readonly options: Options;
  readonly sources: Readonly<Record<OptionKey, OptionSource>>;
  /** The values in textual form. */
  readonly texts: Readonly<Record<OptionKey, string>>;
}

export interface OptionInputs {
  /** The options of the command line as text (`true` for a switch), by option key. */
  readonly flags: Readonly<Partial<Record<OptionKey, string>>>;
  /** The options that `-o` set, in the same form. */
  readonly words?: Readonly<Partial<Record<OptionKey, string>>>;
  /** Other problems of the command line, as messages: reported together with the other problems. */
  readonly problems?: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The path of config.toml, if the file exists. */
  readonly file: { readonly path: string; readonly text: string } | null;
}

/**
 * Defaults < config.toml < environment < `-o` < flags. A wrong value is a problem even where a stronger source overrides it.
 *
 * @throws UsageError (exit code `exitCode`) naming *all* problems, one per line, each with its place.
 */
export function loadOptions(inputs: OptionInputs, exitCode = 2): LoadedOptions {
  const problems: string[] = [...(inputs.problems ?? [])];
  const table = readTable(inputs.file, problems);
  const options: Partial<Record<OptionKey, unknown>> = {};
  const sources: Partial<Record<OptionKey, OptionSource>> = {};
  const texts: Partial<Record<OptionKey, string>> = {};

  for (const [key, option] of optionRows()) {
    options[key] = option.parse(option.default);
    sources[key] = 'default';
    texts[key] = option.default;
    const take = (source: OptionSource, place: string, text: string | undefined): void => {
      if (text === undefined) return;
      try {
        options[key] = option.parse(text);
        sources[key] = source;
        texts[key] = text;
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        problems.push(`${place}: ${error.message}`);
      }
    };
    const inFile = table.get(fileKeyOf(option));
    take('file', `${inputs.file?.path}:${inFile?.line}: ${fileKeyOf(option)}`, inFile?.text);
    take('environment', envNameOf(option), inputs.env[envNameOf(option)]);
    take('flag', `-o ${fileKeyOf(option)}`, inputs.words?.[key]);
    take('flag', option.flag, inputs.flags[key]);
  }

  if (problems.length > 0) throw new UsageError(problems.join('\n'), exitCode);
  return {
    options: options as unknown as Options,
    sources: sources as Record<OptionKey, OptionSource>,
    texts: texts as Record<OptionKey, string>,
  };
}

interface FileValue {
  readonly text: string;
  readonly line: number;
}

/** The known keys of config.toml as texts, so that one `parse` judges every source. */
function readTable(file: OptionInputs['file'], problems: string[]): ReadonlyMap<string, FileValue> {
  const values = new Map<string, FileValue>();
  if (file === null) return values;
  let table: Record<string, unknown>;
  try {
    table = parseToml(file.text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const reason = error.message.split('\n', 1)[0]?.replace(/^Invalid TOML document: /, '');
    problems.push(`${file.path}:${error.line}: ${wordsOfParser(reason)}`);
    return values;
  }
  const known = new Map(optionRows().map(([, option]) => [fileKeyOf(option), option]));
  for (const [key, value] of Object.entries(table)) {
    const line = lineOf(key, file.text);
    const option = known.get(key);
    if (option === undefined) problems.push(`${file.path}:${line}: ${key}: there is no such option`);
    else if (option.isQuoted === true && typeof value === 'number')
      problems.push(`${file.path}:${line}: ${key}: expected a string in quotes, such as "${option.default}"`);
    else if (option.isRepeatable === true && Array.isArray(value) && value.every((word) => typeof word === 'string'))
      values.set(key, { text: value.join(','), line });
    else if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
      values.set(key, { text: String(value), line });
    else problems.push(`${file.path}:${line}: ${key}: expected a string, a number, true or false`);
  }
  return values;
}

/** smol-toml reports an unclosed quote as a control character, because the string then runs into the line end. */
function wordsOfParser(reason = ''): string {
  return reason === 'control characters are not allowed in strings' ? 'a quote is not closed' : reason;
}

/** The parser gives values without places; the first line that sets the key is the place in all but contrived files. */
function lineOf(key: string, text: string): number {
  const lines = text.split('\n');
  const index = lines.findIndex((line) => line.replace(/^[\s["']+/, '').startsWith(key));
  return index < 0 ? 1 : index + 1;
}
