import { Postgres } from '../../../src/server/postgres/postgres.ts';

/** Counts that differ from what is counted anew, and references that lead nowhere. */
export async function miscounts(url: string): Promise<unknown[]> {
  const postgres = await Postgres.open(url, { connectionsMax: 1 });
  try {
    // A server that never started.
    const { users } = await postgres.one<{ users: string | null }>("SELECT to_regclass('users') AS users");
    if (users === null) return [];
    const [accounts, blobs, parts, objects, contents] = await Promise.all([
      postgres.rows(`
        SELECT * FROM (
          SELECT uid, ARRAY[entries, unfinished, held_bytes, usage_bytes]::numeric[] AS counts, ARRAY[
            (SELECT count(*) FROM resources r WHERE r.uid = u.uid AND role IS DISTINCT FROM 'system'),
            (SELECT count(*) FROM versions v WHERE v.uid = u.uid AND NOT complete AND NOT hidden),
            (SELECT coalesce(sum(entry_bytes(r)), 0) FROM resources r WHERE r.uid = u.uid AND role IS DISTINCT FROM 'system')
              + (SELECT coalesce(sum(1024 + size_bytes), 0) FROM versions v WHERE v.uid = u.uid),
            (SELECT coalesce(sum(newest_size), 0) FROM resources r WHERE r.uid = u.uid)
          ]::numeric[] AS anew FROM users u
        ) AS both_counts WHERE counts <> anew`),
      postgres.rows(`
        SELECT name, b.refs, v.refs AS anew FROM blobs b
        FULL JOIN (SELECT blob, count(*) AS refs FROM versions GROUP BY blob) v ON v.blob = name
        WHERE b.refs IS DISTINCT FROM v.refs`),
      postgres.rows('SELECT blob, key FROM parts WHERE NOT EXISTS (SELECT FROM blobs WHERE name = blob)'),
      postgres.rows(`
        SELECT o.key, state FROM objects o LEFT JOIN parts p ON p.key = o.key
        WHERE (state = 'live') <> (p.key IS NOT NULL)`),
      postgres.rows(`
        SELECT version, size_bytes, sizes.* FROM versions v, LATERAL (
          SELECT coalesce(octet_length(bytes), (SELECT sum(size) FROM parts WHERE blob = name), 0) AS stored
          FROM blobs WHERE name = v.blob
        ) AS sizes WHERE stored <> size_bytes`),
    ]);
    return [...accounts, ...blobs, ...parts, ...objects, ...contents];
  } finally {
    await postgres.close();
  }
}
