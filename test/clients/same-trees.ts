import type { MountFixture } from '../harness/mount-fixture.ts';
import type { ServerEntry, ServerReader } from '../harness/server-reader.ts';
import { treeDigests } from '../harness/tree-digests.ts';

/**
 * What mounts and service show, as lines that have to be equal: nothing may be missing, nothing twice, and each name is the same file's on all
 * sides. Of several files with one name the first by address has it, the others have numbers (S-names-6).
 */
export type Bag = readonly string[];

export async function bagOfMount(mount: MountFixture): Promise<Bag> {
  return bagOf([...(await treeDigests(mount))]);
}

/** Without files that were made and never filled. */
export async function bagOfService(reader: ServerReader): Promise<Bag> {
  return bagOf(await reader.listFilledDigests(shownToMounts));
}

function shownToMounts(entries: readonly ServerEntry[]): readonly ServerEntry[] {
  const ordered = entries.toSorted((one, other) => (one.url < other.url ? -1 : 1));
  const plain = new Set(entries.map(({ parent, path }) => `${parent} ${nameOf(path)}`));
  const given = new Set<string>();
  const names = new Map<string, string>();
  const folders = new Map(entries.map((entry) => [entry.url, entry]));
  for (const { parent, path, url } of ordered) {
    const name = nameOf(path);
    let shown = name;
    for (
      let number = 2;
      given.has(`${parent} ${shown}`) || (shown !== name && plain.has(`${parent} ${shown}`));
      number++
    ) {
      shown = name.replace(/(?<=.)(\.[^.]*)?$/, ` (${number})$1`);
    }
    given.add(`${parent} ${shown}`);
    names.set(url, shown);
  }
  const pathOf = ({ parent, url }: ServerEntry): string => {
    const folder = folders.get(parent);
    return folder === undefined ? `${names.get(url)}` : `${pathOf(folder)}/${names.get(url)}`;
  };
  return entries.map((entry) => ({ ...entry, path: pathOf(entry) }));
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
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
  return entries.map(([path, digest]) => `${path} ${digest.slice(0, 16)}`).sort();
}
