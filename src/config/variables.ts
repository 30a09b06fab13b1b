import { envNameOf, optionRows } from './options.ts';

const PREFIX = 'CFS_';
/** Variables beside those of the options: of `cfs login`, of `cfs diff`, and from the launcher to the mounting process. */
const OTHERS = [
  'CFS_URL',
  'CFS_USERNAME',
  'CFS_PASSWORD',
  'CFS_PASSWORD_FILE',
  'CFS_APPLICATION',
  'CFS_ACCESS_KEY_ID',
  'CFS_PRIVATE_ACCESS_KEY',
  'CFS_PRIVATE_ACCESS_KEY_FILE',
  'CFS_DIFF',
  'CFS_MOUNT_REQUEST',
  'CFS_MOUNT_READY_FD',
] as const;
/** Edits (a letter more, less, other, or two in the wrong order) up to which a name counts as a misspelt one. */
const EDITS_MAX = 2;

/** For each variable `CFS_…` that no program here reads, a sentence without a full stop: which, and what may have been meant. */
export function unknownVariables(env: Readonly<Record<string, string | undefined>>): readonly string[] {
  const known = [...optionRows().map(([, option]) => envNameOf(option)), ...OTHERS];
  return Object.keys(env)
    .filter((name) => name.startsWith(PREFIX) && env[name] !== undefined && !known.includes(name))
    .sort()
    .map((name) => {
      const guess = nearestOf(name, known);
      return `${name} has no effect: there is no such variable${guess === null ? '' : ` (did you mean ${guess}?)`}`;
    });
}

function nearestOf(name: string, known: readonly string[]): string | null {
  let nearest: string | null = null;
  let least = EDITS_MAX + 1;
  for (const each of known) {
    const edits = editsBetween(name, each);
    if (edits < least) [nearest, least] = [each, edits];
  }
  return nearest;
}

/** The optimal string alignment distance. */
function editsBetween(one: string, other: string): number {
  let before: readonly number[] = [];
  let row: readonly number[] = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const isSame = one[i - 1] === other[j - 1];
      let edits = Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, (row[j - 1] ?? 0) + (isSame ? 0 : 1));
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1])
        edits = Math.min(edits, (before[j - 2] ?? 0) + 1);
      next.push(edits);
    }
    [before, row] = [row, next];
  }
  return row[other.length] ?? 0;
}
