import type { MountFixture } from '../harness/mount-fixture.ts';
import type { ServerReader } from '../harness/server-reader.ts';
import { treeDigests } from '../harness/tree-digests.ts';

/**
 * What mounts and service show, in a form in which they have to be equal. Two files that were made under one name, each where
 * the other was not seen, keep it where they were made; elsewhere one of them has a number or is called a conflicted copy
 * (S-names-5). So the marks are taken off, and what lies at each place is a bag: nothing may be missing, nothing twice.
 */
export type Bag = readonly string[];

export async function bagOfMount(mount: MountFixture): Promise<Bag> {
  return bagOf([...(await treeDigests(mount))]);
}

/** Without files that were made and never filled, which no mount shows. */
export async function bagOfService(reader: ServerReader): Promise<Bag> {
  return bagOf(await reader.listFilledDigests());
}

/** The differences as sentences; none when they are equal. */
export function bagDifferences(found: Bag, wanted: Bag): string[] {
  const counts = new Map<string, number>();
  for (const line of wanted) counts.set(line, (counts.get(line) ?? 0) + 1);
  for (const line of found) counts.set(line, (counts.get(line) ?? 0) - 1);
  return [...counts].flatMap(([line, count]) =>
    count === 0 ? [] : [count > 0 ? `missing: ${line}` : `too much: ${line}`],
  );
}

function bagOf(entries: readonly (readonly [string, string])[]): Bag {
  return entries.map(([path, digest]) => `${path.split('/').map(unmarked).join('/')} ${digest.slice(0, 16)}`).sort();
}

function unmarked(name: string): string {
  return name.replace(/( \((\d+|conflicted copy [^()]*)\))+(?=(\.[^.]*)?$)/, '');
}
