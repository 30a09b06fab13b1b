import { Refusal } from './refusal.ts';

/**
 * `[start, end)` of a Range header; null for the whole: no header, another unit, several ranges. Parsed by hand: a
 * regular expression that allows blanks between the parts backtracks, and a header full of blanks would block the
 * server for a third of a second.
 *
 * @throws Refusal 416 for an invalid range, or one outside the data
 */
export function requestedRange(header: string | undefined, sizeBytes: number): { start: number; end: number } | null {
  const [unit, set] = halves(header ?? '', '=');
  if (set === null || unit.toLowerCase() !== 'bytes' || set.includes(',')) return null;
  const [first, last] = halves(set, '-');
  const unsatisfiable = new Refusal(416, 'Range not satisfiable', { 'Content-Range': `bytes */${sizeBytes}` });
  if (last === null || first + last === '' || !/^\d*$/.test(first + last)) throw unsatisfiable;
  // Any number of digits: clients also write "to the end" as the greatest number that they know.
  const start = first === '' ? Math.max(0, sizeBytes - Number(last)) : Number(first);
  const end = first === '' || last === '' ? sizeBytes : Math.min(Number(last) + 1, sizeBytes);
  if (start >= end) throw unsatisfiable;
  return { start, end };
}

/** The text before and after the first `mark`, trimmed; null after it if there is no mark. */
function halves(text: string, mark: string): [before: string, behind: string | null] {
  const at = text.indexOf(mark);
  return at === -1 ? [text.trim(), null] : [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}
