// The output of a test file, shortened for the end of a long log: often only the last 190 lines of a failed run are shown.

/** Limit of all failures together, and of each one. */
const REPORT_LINES_MAX = 170;
const FAILURE_LINES_MAX = 80;
const FAILURE_LINES_MIN = 12;
/** Limit of the output before the first failure: the harness's own lines, with the seeds. */
const SAID_LINES_MAX = 15;
/** For a file that ended without results. */
const LAST_LINES_MAX = 60;
const LINE_CHARS_MAX = 400;

/** vitest's headings (`⎯⎯ Failed Tests 2 ⎯⎯`), the first line of a failure below them, and the ruler that ends it. */
const HEADING = /^⎯+ [A-Z]/;
const FAILURE_BEGINS = /^ FAIL |^⎯+ (?!Failed |Unhandled Errors)[A-Z]/;
const FAILURE_ENDS = /^⎯{10,}(\[\d+\/\d+\]⎯*)?$/;

/**
 * The failures that vitest's default reporter printed: assertion, difference, first lines of the stack. The first one begins
 * with the seed and the last output before it.
 * @param {string} said what one run printed, without colours
 * @returns the lines of each; if no failure is named, the end of the output as the only one
 */
export function failuresIn(said) {
  const lines = said
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => (line.length > LINE_CHARS_MAX ? `${line.slice(0, LINE_CHARS_MAX)}…` : line));
  const heading = lines.findIndex((line) => HEADING.test(line));
  /** @type {string[][]} */
  const failures = [];
  let inFailure = false;
  for (const line of heading < 0 ? [] : lines.slice(heading)) {
    if (FAILURE_BEGINS.test(line)) failures.push([]);
    inFailure = FAILURE_BEGINS.test(line) || (inFailure && !FAILURE_ENDS.test(line));
    if (inFailure) failures.at(-1)?.push(line);
  }
  if (failures.length === 0) return [lines.slice(-LAST_LINES_MAX)];
  const [seed = '', ...before] = lines.slice(0, heading);
  failures[0]?.unshift(seed, ...before.slice(-SAID_LINES_MAX));
  return failures;
}

/**
 * All failures in at most about `REPORT_LINES_MAX` lines: each keeps its beginning and its end.
 * @param {string[][]} failures
 */
export function reportOf(failures) {
  const each = Math.floor(REPORT_LINES_MAX / Math.max(failures.length, 1));
  const linesMax = Math.min(FAILURE_LINES_MAX, Math.max(FAILURE_LINES_MIN, each));
  return failures.map((lines) => shortened(lines, linesMax).join('\n')).join('\n\n');
}

/**
 * @param {string[]} lines
 * @param {number} linesMax
 */
function shortened(lines, linesMax) {
  if (lines.length <= linesMax) return lines;
  const head = Math.ceil((linesMax * 2) / 3);
  const tail = linesMax - head - 1;
  return [...lines.slice(0, head), `… ${lines.length - head - tail} lines …`, ...lines.slice(-tail)];
}
