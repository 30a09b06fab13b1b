import { diffLines } from 'diff';

/** Equal lines shown around a change. */
const CONTEXT_LINES = 3;

export interface Line {
  readonly mark: '+' | '-' | ' ' | '…';
  readonly text: string;
}

/** Long equal parts are cut to their ends. */
export function diffedLines(before: string, after: string): readonly Line[] {
  const parts = diffLines(before, after);
  return parts.flatMap(({ value, added, removed }, index): readonly Line[] => {
    const texts = value.replace(/\n$/, '').split('\n');
    const mark = added ? '+' : removed ? '-' : ' ';
    const all = texts.map((text): Line => ({ mark, text }));
    if (mark !== ' ' || all.length <= 2 * CONTEXT_LINES + 1) return all;
    const start = index === 0 ? [] : all.slice(0, CONTEXT_LINES);
    const end = index === parts.length - 1 ? [] : all.slice(-CONTEXT_LINES);
    return [...start, { mark: '…', text: `${all.length - start.length - end.length} equal lines` }, ...end];
  });
}
