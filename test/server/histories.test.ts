import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Administration } from '../../src/server/administration.ts';
import type { FileRow, VersionRow } from '../../src/server/database.ts';
import { openParts, type Parts } from '../../src/server/reference-server.ts';

/** A file that was saved a thousand times. */

const VERSIONS = 1_000;
const directory = mkdtempSync(join(tmpdir(), 'cfs-histories-'));
let parts: Parts;
let file: FileRow;
let newestFirst: string[];

beforeAll(async () => {
  parts = openParts({ dataDirectory: directory });
  const { repository, histories, blobs, database } = parts;
  const { userId: uid } = await new Administration(parts).addUser('a@example.com', 'secret', { scryptCost: 2 ** 10 });
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

/** How many rows of versions are read meanwhile. */
function rowsRead(act: () => unknown): number {
  const { versions } = parts.database;
  const { getRange } = versions;
  let rows = 0;
  const counted = (found: Iterable<{ key: [string, string, number]; value: VersionRow }>) => ({
    *[Symbol.iterator]() {
      for (const row of found) {
        rows++;
        yield row;
      }
    },
  });
  versions.getRange = ((options?: object) => counted(getRange.call(versions, options))) as unknown as typeof getRange;
  try {
    act();
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
])('the page from %i on, of at most %i, is read alone', (start, max) => {
  const { histories } = parts;
  const page = histories.list(file, start, max);

  expect(page.entries.map(({ version }) => version)).toEqual(newestFirst.slice(start, start + max));
  expect(page).toMatchObject({ start, hasMore: start + max < VERSIONS });
  expect(rowsRead(() => histories.list(file, start, max))).toBeLessThanOrEqual(max + 1);
});

test('the newest is found without the others', () => {
  const { histories } = parts;

  expect(histories.newest(file)?.version).toBe(newestFirst[0]);
  expect(rowsRead(() => histories.newest(file))).toBe(0);
});
