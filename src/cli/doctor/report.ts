import { visible } from '../../mount/mount-event.ts';
import type { Looked } from './examination.ts';
import { FINDINGS, type Finding } from './finding.ts';

const COLUMNS = 80;

/** The results as lines of at most 80 columns, if their names allow it. */
export function lookedText({ area, subject, note, findings }: Looked): string {
  const about = subject === null ? area : `${area} of ${subject}`;
  if (findings.length === 0)
    return wrapped(`${about}: sound${note === null || note === '' ? '' : ` (${visible(note)})`}`, '  ');
  return findings.map((found) => findingText(about, found)).join('\n');
}

/** The output for scripts. New fields do not raise `schema`, and names of findings keep their meaning. */
export function reportJson(looked: readonly Looked[]): string {
  const findings = looked.flatMap(({ area, subject, findings }) =>
    findings.map(({ name, what, cure }) => ({ name, severity: FINDINGS[name].severity, area, subject, what, cure })),
  );
  const checks = looked.map(({ area, subject, note, findings }) => ({
    area,
    subject,
    note,
    findings: findings.length,
  }));
  return `${JSON.stringify({ schema: 1, checks, findings }, null, 2)}\n`;
}

/** The last line. */
export function summaryText(looked: readonly Looked[]): string {
  const found = looked.flatMap(({ findings }) => findings);
  const problems = found.filter(({ name }) => FINDINGS[name].severity === 'problem').length;
  const warnings = found.length - problems;
  if (found.length === 0) return 'nothing is wrong';
  const counted = [counts(problems, 'problem'), counts(warnings, 'warning')].filter((text) => text !== '');
  return counted.join(' and ');
}

function findingText(about: string, { name, what, cure }: Finding): string {
  const { severity } = FINDINGS[name];
  return `${wrapped(`${about}: ${severity}: ${visible(what)} [${name}]`, '  ')}\n${wrapped(cure, '    ', '  → ')}`;
}

function counts(count: number, what: string): string {
  if (count === 0) return '';
  return count === 1 ? `1 ${what}` : `${count} ${what}s`;
}

/** Breaks lines between words only: a path or an address stays whole. `first` and `rest` are the indents. */
function wrapped(text: string, rest: string, first = ''): string {
  const lines: string[] = [];
  let line = first;
  let isEmpty = true;
  for (const word of text.split(' ')) {
    if (!isEmpty && line.length + 1 + word.length > COLUMNS) {
      lines.push(line);
      line = `${rest}${word}`;
    } else line += isEmpty ? word : ` ${word}`;
    isEmpty = false;
  }
  return [...lines, line].join('\n');
}
