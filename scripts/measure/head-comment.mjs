import { readFileSync } from 'node:fs';

/**
 * The comment that a script begins with, which is also its `--help`.
 * @param {string | URL} script
 */
export function headComment(script) {
  const lines = readFileSync(new URL(script), 'utf8').split('\n');
  return lines
    .slice(
      0,
      lines.findIndex((line) => !line.startsWith('//')),
    )
    .map((line) => line.replace(/^\/\/ ?/, ''))
    .join('\n');
}
