import type { Blobs } from './blobs.ts';
import type { Database } from './database.ts';
import { TEXT_END } from './rows.ts';

/** Rows that one change deletes. */
const PIECE_ROWS = 500;

/** Deletes all rows and blobs of a removed account, in small changes; may be repeated after an interruption. */
export async function removeAccountData(database: Database, blobs: Blobs, uid: string): Promise<void> {
  const { versions, resources, children, names, publicLinks, workspaces, removals } = database;
  await inPieces(uid, versions, async (rows) => {
    const gone = await database.changeTogether(() =>
      rows.map(({ key, value }) => {
        void versions.remove(key);
        database.dropBlob(value.blob);
        return value.blob;
      }),
    );
    await blobs.remove(gone);
  });
  for (const table of [resources, children, names, publicLinks, workspaces] as readonly AnyTable[]) {
    await inPieces(uid, table, (rows) =>
      database.changeTogether(() => {
        for (const { key } of rows) void table.remove(key);
      }),
    );
  }
  await database.changeTogether(() => {
    void database.usage.remove(uid);
    database.removeHoldings(uid);
    void removals.remove(uid);
  });
}

/** Finishes removals that a killed process has begun. */
export async function finishRemovals(database: Database, blobs: Blobs): Promise<void> {
  for (const uid of [...database.removals.getKeys({})]) await removeAccountData(database, blobs, uid);
}

interface AnyTable<V = unknown, K = unknown> {
  getRange(options: object): Iterable<{ key: K; value: V }>;
  remove(key: K): unknown;
}

async function inPieces<V, K>(
  uid: string,
  table: AnyTable<V, K>,
  remove: (rows: readonly { key: K; value: V }[]) => Promise<void>,
): Promise<void> {
  for (;;) {
    const range = { start: [uid], end: [uid, TEXT_END], limit: PIECE_ROWS };
    const rows = [...table.getRange(range)];
    if (rows.length === 0) return;
    await remove(rows);
  }
}
