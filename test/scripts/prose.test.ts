import { expect, test } from 'vitest';

const { longSentences } = (await import(new URL('../../scripts/prose.mjs', import.meta.url).href)) as {
  longSentences(text: string, kind: 'code' | 'document'): { line: number; words: number }[];
};

const words = (count: number): string => `Word${' word'.repeat(count - 1)}.`;

test('a sentence of 25 words is not reported, one of 26 is', () => {
  expect(longSentences(words(25), 'document')).toEqual([]);
  expect(longSentences(words(26), 'document')).toMatchObject([{ line: 1, words: 26 }]);
});

test('of code only the comments are read, over line ends', () => {
  const code = `const text = '${words(30)}';
/**
 * Short. ${words(20).slice(0, -1)}
 * ${words(20)}
 */
const other = 1; // ${words(27)}
`;

  expect(longSentences(code, 'code')).toMatchObject([
    { line: 3, words: 40 },
    { line: 6, words: 27 },
  ]);
});

test('list items are sentences of their own; tables and code blocks are left out', () => {
  const text = `- ${words(20)}\n- ${words(20)}\n\n| ${words(30)} |\n\n\`\`\`\n${words(30)}\n\`\`\`\n`;

  expect(longSentences(text, 'document')).toEqual([]);
});

test('a code span counts as one word', () => {
  expect(longSentences(`\`${words(30)}\` ${words(24)}`, 'document')).toEqual([]);
});
