import type { Ground } from './ground.ts';

/**
 * What is in a directory, as text that can be compared: path → SHA-256 of a file in hex, `-> target` of a symlink; folders
 * end in `/` and have `folder`. The same form as `ServerReader.digests`. Read by child processes.
 *
 * @param folder below the ground's directory; paths are relative to it
 */
export async function treeDigests(ground: Pick<Ground, 'run'>, folder = '.'): Promise<Map<string, string>> {
  const { stdout } = await ground.run(
    `cd '${folder}'
     find . -mindepth 1 -type d -printf 'folder  %p/\\0'
     find . -type l -printf '-> %l  %p\\0'
     find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum -z --`,
    { timeoutMs: 300_000 },
  );
  const digests = new Map<string, string>();
  for (const record of stdout.split('\0')) {
    // The path begins behind the last two blanks and `./`: targets and names may hold blanks themselves.
    const at = record.search(/ {2}\.\//);
    if (at >= 0) digests.set(record.slice(at + 4), record.slice(0, at));
  }
  return digests;
}

/** The differences between two trees as sentences; none when they are equal. */
export function treeDifferences(found: ReadonlyMap<string, string>, wanted: ReadonlyMap<string, string>): string[] {
  const differences: string[] = [];
  for (const [path, digest] of wanted) {
    const other = found.get(path);
    if (other === undefined) differences.push(`missing: ${path}`);
    else if (other !== digest) differences.push(`different: ${path}: ${other} instead of ${digest}`);
  }
  for (const path of found.keys()) if (!wanted.has(path)) differences.push(`too much: ${path}`);
  return differences;
}
