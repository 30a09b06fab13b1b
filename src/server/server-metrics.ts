import type { Metric } from './admin-server.ts';
import type { Lines } from './lines.ts';
import type { RequestLog } from './request-log.ts';
import type { Parts } from './server-parts.ts';

/** The metrics of every server, for `/metrics`. */
export function serverMetrics(requests: RequestLog, lines: Lines): readonly Metric[] {
  const byStatus = new Map([...requests.byStatus].map(([status, count]) => [`{status="${status}"}`, count]));
  return [
    metric('counter', 'requests_total', 'Requests by status; 0 for none sent.', byStatus),
    metric('counter', 'request_seconds_total', 'Duration of all requests.', one(requests.durationMs / 1000)),
    metric('counter', 'received_bytes_total', 'Bytes of request bodies.', one(requests.bytesIn)),
    metric('counter', 'sent_bytes_total', 'Bytes of response bodies.', one(requests.bytesOut)),
    metric('gauge', 'connections', 'Open connections.', one(lines.size)),
    metric('gauge', 'waiting_requests', 'Requests that wait behind others of their connection.', one(lines.waiting)),
    metric('gauge', 'resident_bytes', 'Memory of the process.', one(process.memoryUsage.rss())),
  ];
}

/** The metrics of the data of this machine. */
export function backEndMetrics({
  database,
  uploads,
  mover,
}: Pick<Parts, 'database' | 'uploads' | 'mover'>): readonly Metric[] {
  const freeBytes = database.reserve.freeBytes();
  return [
    metric('gauge', 'active_uploads', 'Versions being written.', one(uploads.underWay)),
    metric('gauge', 'accounts', 'Accounts.', one(database.users.getCount())),
    ...(mover === null
      ? []
      : [
          metric('gauge', 'stored_blobs', 'Blobs in the object store.', one(database.objects.size)),
          metric('gauge', 'waiting_versions', 'Versions that wait for the object store.', one(mover.waiting)),
          metric('counter', 'moved_versions_total', 'Versions moved to the object store.', one(mover.counts.moved)),
          metric('counter', 'move_failures_total', 'Failed moves to the object store.', one(mover.counts.failed)),
        ]),
    ...(freeBytes === null
      ? []
      : [
          metric('gauge', 'disk_free_bytes', 'Free bytes of the disk of the data.', one(freeBytes)),
          metric(
            'gauge',
            'disk_spare_bytes',
            'Free bytes that uploads and creations may use; the rest is for deletions, sign-ins and administration.',
            one(database.reserve.spareBytes(freeBytes)),
          ),
        ]),
  ];
}

export function metric(type: Metric['type'], name: string, help: string, samples: ReadonlyMap<string, number>): Metric {
  return { name: `cfs_serve_${name}`, help, type, samples };
}

/** The samples of a metric without labels. */
export function one(value: number): ReadonlyMap<string, number> {
  return new Map([['', value]]);
}
