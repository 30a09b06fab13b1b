import { readFileSync } from 'node:fs';

/** A safeguard that is taken out of a source, so that a test must fail. */
export interface Ablation {
  /** What is switched off. */
  readonly safeguard: string;
  readonly file: string;
  /** Exactly once in the file. */
  readonly from: string;
  readonly to: string;
  readonly test: string;
}

/** The titles of the failed tests in a report of vitest's JSON reporter. @throws Error if no test was run */
export function failuresIn(report: string): readonly string[] {
  const { testResults } = JSON.parse(readFileSync(report, 'utf8')) as {
    testResults: { assertionResults: { status: string; title: string }[] }[];
  };
  const results = testResults.flatMap(({ assertionResults }) => assertionResults);
  if (results.length === 0) throw new Error('no test was run');
  return results.filter(({ status }) => status === 'failed').map(({ title }) => title);
}
