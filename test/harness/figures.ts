/** What `scripts/soak.mjs` looks for. */
const MARK = 'figures: ';

/** What a long test did, in numbers: said now, and again at the end of `npm run soak`. */
export function tellFigures(text: string): void {
  console.info(`${MARK}${text}`);
}
