/**
 * Converts a name pattern to a regular expression, for case-insensitive use. `*`, `?`, `[a-p]` and `[!a-p]` as in a
 * shell. @throws RangeError
 */
export function namePattern(pattern: string): string {
  if (pattern === '' || pattern.includes('/')) throw new RangeError(`"${pattern}" is not a valid name pattern`);
  return pattern.replace(/\[(!?)([^\]\\^]+)\]|[\s\S]/g, (token, not: string | undefined, set: string | undefined) => {
    if (set !== undefined) {
      const range = `[${not === '' ? '' : '^'}${set.replaceAll('[', '\\[')}]`;
      mustCompile(range, pattern);
      return range;
    }
    return token === '*' ? '.*' : token === '?' ? '.' : token.replace(/[.+^${}()|[\]\\/]/, '\\$&');
  });
}

function mustCompile(expression: string, pattern: string): void {
  try {
    new RegExp(expression, 'isu');
  } catch (error) {
    throw new RangeError(`"${pattern}" is not a valid name pattern`, { cause: error });
  }
}
