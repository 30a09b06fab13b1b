import type { Capability } from './file-api.ts';
import type { Workplace } from './workplace.ts';

/** One case of the conformance suite: a sentence that can be false, and how to find out in a folder of its own. */
export interface Scenario {
  readonly name: string;
  /** What the way of reaching the file system must be able to do. */
  readonly needs: readonly Capability[];
  run(fs: Workplace): Promise<void>;
}

export function scenario(name: string, run: Scenario['run']): Scenario;
export function scenario(name: string, needs: readonly Capability[], run: Scenario['run']): Scenario;
export function scenario(
  name: string,
  needsOrRun: readonly Capability[] | Scenario['run'],
  run?: Scenario['run'],
): Scenario {
  if (typeof needsOrRun === 'function') return { name, needs: [], run: needsOrRun };
  if (run === undefined) throw new Error(`${name}: nothing to run`);
  return { name, needs: needsOrRun, run };
}
