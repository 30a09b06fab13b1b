import { envNameOf, optionRows } from '../config/options.ts';
import { EXIT_CODES } from '../mount/exit-codes.ts';
import type { CommandRow } from './command-row.ts';
import { commandRows } from './command-table.ts';
import { findingKinds } from './doctor/finding.ts';

/** The generated tables of the documents. `node scripts/readme.mjs` writes them, and a test compares them. */

/** All public options, as a Markdown table. */
export function optionsTable(): string {
  const rows = optionRows()
    .filter(([, option]) => !option.hidden)
    .map(([, option]) => [
      `\`${option.flag}\``,
      `\`${envNameOf(option)}\``,
      defaultOf(option.placeholder, option.default),
      option.help,
    ]);
  return markdownTable(['flag', 'environment', 'default', 'what it does'], rows);
}

function defaultOf(placeholder: string | null, text: string): string {
  if (placeholder === null) return 'off';
  return text === '' ? 'none' : `\`${text}\``;
}

/** All commands of `cfs` for daily use, as a Markdown table. */
export function commandsTable(): string {
  const rows = commandRows()
    .filter((row) => row.isAdministration !== true)
    .map((row) => [`\`${usageOf(row)}\``, row.summary]);
  return markdownTable(['command', 'what it does'], rows);
}

/** `cfs sync [--wait] [--timeout <duration>] [path]`. */
export function usageOf(row: CommandRow): string {
  const flags = row.flags.map(({ flag, placeholder }) => `[${flag}${placeholder === null ? '' : ` ${placeholder}`}]`);
  const args = row.args.map(({ name, isRequired, isRepeated }) => {
    const words = isRepeated === true ? `${name}...` : name;
    return isRequired ? `<${words}>` : `[${words}]`;
  });
  // Too many flags for one line.
  return ['cfs', row.name, ...(flags.length > 6 ? ['[options]'] : flags), ...args].join(' ');
}

/** All exit codes, as a Markdown table. */
export function exitCodesTable(): string {
  return markdownTable(
    ['code', 'meaning'],
    Object.values(EXIT_CODES).map(({ code, meaning }) => [String(code), meaning]),
  );
}

/** All findings of `cfs doctor`, as a Markdown table. */
export function findingsTable(): string {
  const rows = findingKinds().map(([name, { symptom, cause, cure }]) => [
    symptom,
    cause,
    cure.replaceAll('{}', 'PATH'),
    `\`${name}\``,
  ]);
  return markdownTable(['symptom', 'cause', 'cure', 'finding'], rows);
}

/** The documents with sections between `<!-- name -->` and `<!-- /name -->`,and the generator of each section. */
export const GENERATED_SECTIONS = {
  'README.md': { commands: commandsTable, options: optionsTable, 'exit-codes': exitCodesTable },
  'docs/troubleshooting.md': { findings: findingsTable },
} as const satisfies Readonly<Record<string, Readonly<Record<string, () => string>>>>;

export type GeneratedDocument = keyof typeof GENERATED_SECTIONS;

/** `text` with every generated section of a document updated. @throws Error if a section has no markers */
export function withGeneratedSections(text: string, document: GeneratedDocument = 'README.md'): string {
  let updated = text;
  for (const [name, make] of Object.entries(GENERATED_SECTIONS[document])) {
    const [start, end] = [`<!-- ${name} -->\n`, `\n<!-- /${name} -->`];
    const [from, to] = [updated.indexOf(start), updated.indexOf(end)];
    if (from < 0 || to < from) throw new Error(`no place for the section ${name}`);
    updated = `${updated.slice(0, from + start.length)}${make()}${updated.slice(to)}`;
  }
  return updated;
}

function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}
