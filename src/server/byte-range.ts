import { Refusal } from './refusal.ts';

/**
 * `[start, end)` of a Range header; null for everything: no header, another unit, several ranges. Taken apart by hand: a pattern that allows
 * blanks between its parts tries them in every way, and a head full of blanks would keep the server for a third of a second.
 *
 * @throws Refusal 416 for a range that is none, or that has no byte of the data
 */
export function requestedRange(header: string | undefined, sizeBytes: number): { start: number; end: number } | null {
  const [unit, set] = halves(header ?? '', '=');
  if (set === null || unit.toLowerCase() !== 'bytes' || set.includes(',')) return null;
  const [first, last] = halves(set, '-');
  const unsatisfiable = new Refusal(416, 'Range not satisfiable', { 'Content-Range': `bytes */${sizeBytes}` });
  if (last === null || first + last === '' || !/^\d*$/.test(first + last)) throw unsatisfiable;
  // Any number of digits: "to the end" is also said by the greatest number that there is.
  const start = first === '' ? Math.max(0, sizeBytes - Number(last)) : Number(first);
  const end = first === '' || last === '' ? sizeBytes : Math.min(Number(last) + 1, sizeBytes);
  if (start >= end) throw unsatisfiable;
  return { start, end };
}

/** What stands before and behind the first `mark`, without blanks around; null where there is none. */
function halves(text: string, mark: string): [before: string, behind: string | null] {
  const at = text.indexOf(mark);
  return at === -1 ? [text.trim(), null] : [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}
