// Reports, and rejects nothing: sentences of more than 25 words in comments and documents, and commit subjects over 72 characters.
//
//   node scripts/prose.mjs             counts by folder, the longest sentences, and the last commits (part of `npm run check`)
//   node scripts/prose.mjs src/store   every long sentence below a path
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const WORDS_MAX = 25;
const SUBJECT_CHARS_MAX = 72;
const COMMITS = 20;
const LONGEST = 5;
const ROOTS = ['src', 'native-deps', 'scripts', 'docs', 'README.md', 'CONTRIBUTING.md'];
const CODE = new Set(['.ts', '.mjs', '.c', '.h']);

/**
 * The sentences of a text that have more than 25 words. A code span counts as one word.
 *
 * @param {string} text
 * @param {'code' | 'document'} kind of code, only the comments are read; of a document, no tables and no code blocks
 * @returns {{ readonly line: number, readonly words: number, readonly sentence: string }[]}
 */
export function longSentences(text, kind) {
  const paragraphs = kind === 'code' ? commentsOf(text) : paragraphsOf(text);
  return paragraphs.flatMap(({ line, prose }) =>
    prose
      .replace(/`[^`]*`/g, 'Code')
      .replace(/\]\([^)]*\)/g, ']')
      .split(/(?<=[\p{L}\])*][.!?]\*{0,2})\s+| · /u)
      .map((sentence) => ({ line, words: sentence.split(/\s+/).filter((word) => /\w/.test(word)).length, sentence }))
      .filter(({ words }) => words > WORDS_MAX),
  );
}

/** @param {string} text @returns {{ line: number, prose: string }[]} the paragraphs of the comments */
function commentsOf(text) {
  /** @type {string[]} */
  const lines = [];
  let isBlock = false;
  for (const line of text.split('\n')) {
    const [, opening] = /^\s*\/\*+ ?(.*)/.exec(line) ?? [];
    const [, lineComment] = /(?:^|\s)\/\/ (.*)/.exec(line) ?? [];
    const comment = isBlock ? line.replace(/\*\/.*/, '').replace(/^\s*\*? ?/, '') : (opening ?? lineComment ?? '');
    isBlock = (isBlock || opening !== undefined) && !line.includes('*/');
    lines.push(comment.replace(/\*\/.*/, '').replace(/(\w)\s@\w+/g, '$1. '));
  }
  return grouped(lines);
}

/** @param {string} text @returns {{ line: number, prose: string }[]} */
function paragraphsOf(text) {
  let isCode = false;
  return grouped(
    text.split('\n').map((line) => {
      if (line.startsWith('```')) isCode = !isCode;
      return isCode || line.startsWith('#') || line.startsWith('<!--') ? '' : line;
    }),
  );
}

/** @param {readonly string[]} lines @returns {{ line: number, prose: string }[]} the lines between empty ones, joined */
function grouped(lines) {
  /** @type {{ line: number, prose: string }[]} */
  const paragraphs = [];
  let isOpen = false;
  lines.forEach((line, index) => {
    // A row of a table, or a line of a diagram.
    const isTabular = /^\s*\||\S {3,}\S/.test(line);
    if (line.trim() === '' || isTabular) {
      isOpen = false;
      return;
    }
    const last = paragraphs.at(-1);
    if (isOpen && last !== undefined && !/^\s*(@\w|[-*] |\d+\. )/.test(line)) last.prose += ` ${line.trim()}`;
    else paragraphs.push({ line: index + 1, prose: line.trim() });
    isOpen = true;
  });
  return paragraphs;
}

/** @param {readonly string[]} args @returns {string[]} the lines of git's output */
function git(...args) {
  return execFileSync('git', args, { encoding: 'utf8', cwd: root }).split('\n').filter(Boolean);
}

const root = fileURLToPath(new URL('..', import.meta.url));

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [, , ...paths] = process.argv;
  const found = git('ls-files', ...(paths.length > 0 ? paths : ROOTS)).flatMap((file) => {
    const kind = CODE.has(extname(file)) ? 'code' : extname(file) === '.md' ? 'document' : null;
    return kind === null
      ? []
      : longSentences(readFileSync(join(root, file), 'utf8'), kind).map((it) => ({ file, ...it }));
  });
  const shown = paths.length > 0 ? found : found.toSorted((one, other) => other.words - one.words).slice(0, LONGEST);
  if (paths.length === 0) {
    const counts = ROOTS.map((folder) => `${folder} ${found.filter(({ file }) => file.startsWith(folder)).length}`);
    console.log(`sentences of more than ${WORDS_MAX} words: ${counts.join(', ')}`);
  }
  for (const { file, line, words, sentence } of shown)
    console.log(`  ${file}:${line}: ${words} words: ${sentence.slice(0, 100)}`);
  if (paths.length === 0) {
    const subjects = git('log', `-${COMMITS}`, '--format=%h %s').filter(
      (line) => line.length - line.indexOf(' ') - 1 > SUBJECT_CHARS_MAX,
    );
    console.log(`commit subjects over ${SUBJECT_CHARS_MAX} characters among the last ${COMMITS}: ${subjects.length}`);
    for (const subject of subjects) console.log(`  ${subject}`);
  }
}
