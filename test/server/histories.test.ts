import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Administration } from '../../src/server/administration.ts';
import { openParts } from '../../src/server/local-back-end.ts';
import type { FileRow, VersionRow } from '../../src/server/rows.ts';
import type { Parts } from '../../src/server/server-parts.ts';

/** A file that was saved a thousand times. */

const VERSIONS = 1_000;
const directory = mkdtempSync(join(tmpdir(), 'cfs-histories-'));
let parts: Parts;
let file: FileRow;
/** Its versions come before the others. */
let early: FileRow;
let newestFirst: string[];

beforeAll(async () => {
  parts = openParts({ dataDirectory: directory });
  const { repository, histories, blobs, database } = parts;
  const { userId: uid } = await new Administration(parts).addUser('a@example.com', 'secret', { scryptCost: 2 ** 10 });
  early = repository.createFile(uid, { uid, local: '2' }, 'early', 'text/plain');
  const { local } = repository.createFile(uid, { uid, local: '2' }, 'log', 'text/plain');
  newestFirst = database
    .change(() => {
      const bytes = new Uint8Array(1);
      const save = () => {
        const arrived = { blob: blobs.newName(), sizeBytes: 1, sha256: 'hash', bytes };
        return histories.add(repository.file(uid, { uid, local }), arrived).version.version;
      };
      return Array.from({ length: VERSIONS }, save);
    })
    .reverse();
  file = repository.file(uid, { uid, local });
});

afterAll(async () => {
  await parts.database.close();
  rmSync(directory, { recursive: true });
});

/** How many rows of versions are read meanwhile, by each asking for some. */
async function rowsRead(act: () => unknown): Promise<number[]> {
  const { versions } = parts.database;
  const { getRange } = versions;
  const rows: number[] = [];
  const counted = (found: Iterable<{ key: [string, string, number]; value: VersionRow }>) => ({
    *[Symbol.iterator]() {
      const at = rows.push(0) - 1;
      for (const row of found) {
        rows[at] = (rows[at] as number) + 1;
        yield row;
      }
    },
  });
  versions.getRange = ((options?: object) => counted(getRange.call(versions, options))) as unknown as typeof getRange;
  try {
    await act();
  } finally {
    versions.getRange = getRange;
  }
  return rows;
}

test.each([
  [0, 1],
  [0, 500],
  [500, 500],
  [999, 500],
  [990, 10],
  [5_000, 10],
  [2 ** 33, 10],
])('the page from %i on, of at most %i, is read alone', async (start, max) => {
  const { histories } = parts;
  const page = histories.list(file, start, max);

  expect(page.entries.map(({ version }) => version)).toEqual(newestFirst.slice(start, start + max));
  expect(page).toMatchObject({ start, hasMore: start + max < VERSIONS });
  const [rows] = await rowsRead(() => histories.list(file, start, max));
  expect(rows).toBeLessThanOrEqual(max + 1);
});

test('the newest is found without the others', async () => {
  const { histories } = parts;

  expect(histories.newest(file)?.version).toBe(newestFirst[0]);
  expect(await rowsRead(() => histories.newest(file))).toEqual([]);
});

test('uploads that nobody went on with are found among all, a piece at a time', async () => {
  const { histories, blobs, database } = parts;
  const begin = () => histories.create(early.uid, early, blobs.newName());
  const [dead, goesOn, underWay] = database.change(() => [begin(), begin(), begin()]) as [
    VersionRow,
    VersionRow,
    VersionRow,
  ];
  const beforeMs = Math.max(dead.lastModifiedMs, goesOn.lastModifiedMs) + 1;
  let forgotten: string[] = [];

  const rows = await rowsRead(async () => {
    const asked = histories.dropAbandoned(beforeMs, (version) => version.seq === underWay.seq);
    const key: [string, string, number] = [goesOn.uid, goesOn.file, goesOn.seq];
    database.change(() => void database.versions.put(key, { ...goesOn, lastModifiedMs: beforeMs }));
    forgotten = await asked;
  });

  expect(forgotten).toEqual([dead.blob]);
  expect(rows.reduce((sum, each) => sum + each, 0)).toBe(VERSIONS + 3);
  expect(Math.max(...rows)).toBeLessThanOrEqual(500);
  expect([dead, goesOn, underWay].map((version) => histories.has(version))).toEqual([false, true, true]);
});
