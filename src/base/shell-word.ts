/** The word as sh(1) reads it back, whatever is in it. */
export function shellWord(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** A command of these words. */
export function shellWords(words: readonly string[]): string {
  return words.map(shellWord).join(' ');
}
