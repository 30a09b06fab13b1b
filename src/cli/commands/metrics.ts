import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import type { MountMetrics } from '../../control/mount-metrics.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { accountStates, isMeant, isRunning, noMount } from '../../mount/running-mounts.ts';

/** `cfs metrics`: the counters of all mounts, or of one account's mount, in the format of Prometheus. */
export async function metricsCommand(
  deps: { readonly paths: Paths; readonly print: (text: string) => void },
  flags: { readonly account: string | null },
): Promise<number> {
  const states = (await accountStates(deps.paths)).filter((state) => isMeant(state, flags.account));
  const mounts = states.filter(isRunning);
  if (mounts.length === 0)
    throw noMount(states, flags.account === null ? 'no mount is running' : `${visible(flags.account)} is not mounted`);
  const samples = await Promise.all(
    mounts.map(async ({ name, socketPath }) => ({
      account: name,
      metrics: await callControl(socketPath, 'metrics', {}),
    })),
  );
  deps.print(prometheusText(samples));
  return exitCode('ok');
}

interface MountSample {
  readonly account: string;
  readonly metrics: MountMetrics;
}

interface Sample {
  readonly suffix?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

interface Family {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly samples: (metrics: MountMetrics) => readonly Sample[];
}

const one = (value: number): readonly Sample[] => [{ value }];
const byKind = (label: string, values: Readonly<Record<string, number>>): readonly Sample[] =>
  Object.entries(values).map(([kind, value]) => ({ labels: { [label]: kind }, value }));

/** The meaning of a name never changes; docs/commands.md lists them. */
const FAMILIES: readonly Family[] = [
  {
    name: 'cfs_uptime_seconds',
    type: 'gauge',
    help: 'Since the mount started.',
    samples: ({ uptimeMs }) => one(uptimeMs / 1000),
  },
  {
    name: 'cfs_online',
    type: 'gauge',
    help: 'Whether the service answers.',
    samples: ({ isOnline }) => one(isOnline ? 1 : 0),
  },
  {
    name: 'cfs_operations_failed_total',
    type: 'counter',
    help: 'Operations of the kernel that were answered with an errno, ENOENT included.',
    samples: ({ operations }) =>
      operations.map(({ operation, failures }) => ({ labels: { operation }, value: failures })),
  },
  {
    name: 'cfs_operation_seconds',
    type: 'histogram',
    help: 'How long operations of the kernel took.',
    samples: ({ operations }) => operations.flatMap(histogram),
  },
  {
    name: 'cfs_operations_waiting',
    type: 'gauge',
    help: 'Operations that wait for their answer now.',
    samples: ({ operationsWaiting }) => one(operationsWaiting),
  },
  {
    name: 'cfs_reads_total',
    type: 'counter',
    help: 'Reads that reached the mount: hit (all of it was here) or miss (something had to be fetched).',
    samples: ({ reads }) => byKind('result', { hit: reads.hits, miss: reads.misses }),
  },
  {
    name: 'cfs_bytes_total',
    type: 'counter',
    help: 'Bytes of contents, from the service (down) and to it (up).',
    samples: ({ bytes }) => byKind('direction', { down: bytes.fetched, up: bytes.pushed }),
  },
  {
    name: 'cfs_requests_total',
    type: 'counter',
    help: 'Requests to the service.',
    samples: ({ requests }) => one(requests.sent),
  },
  {
    name: 'cfs_requests_repeated_total',
    type: 'counter',
    help: 'Requests that were sent again after a failure.',
    samples: ({ requests }) => one(requests.repeated),
  },
  {
    name: 'cfs_pushes_postponed_total',
    type: 'counter',
    help: 'Pushes that failed and were put off.',
    samples: ({ queue }) => one(queue.postponed),
  },
  {
    name: 'cfs_changes',
    type: 'gauge',
    help: 'Changes that the service does not have: pending, or parked until someone acts.',
    samples: ({ queue }) => byKind('state', { pending: queue.pending, parked: queue.parked }),
  },
  {
    name: 'cfs_pending_bytes',
    type: 'gauge',
    help: 'Bytes of the files among the pending changes.',
    samples: ({ queue }) => one(queue.pendingBytes),
  },
  {
    name: 'cfs_transfers',
    type: 'gauge',
    help: 'Transfers that run, and those that wait for their turn.',
    samples: ({ queue }) => byKind('state', { running: queue.transfersRunning, waiting: queue.transfersWaiting }),
  },
  {
    name: 'cfs_cache_bytes',
    type: 'gauge',
    help: 'Disk space: used by what can be fetched again, its limit, and what is not evicted: changes, and files whose version has no known name yet.',
    samples: ({ cache }) =>
      byKind('kind', { used: cache.usedBytes, limit: cache.limitBytes, unsynced: cache.unsyncedBytes }),
  },
  {
    name: 'cfs_quota_bytes',
    type: 'gauge',
    help: "The account's storage, as last reported by the service.",
    samples: ({ quota }) => (quota === null ? [] : byKind('kind', { used: quota.usedBytes, limit: quota.limitBytes })),
  },
];

/** The text format of Prometheus, version 0.0.4: each family once, with the samples of all mounts. */
export function prometheusText(mounts: readonly MountSample[]): string {
  return FAMILIES.map(({ name, type, help, samples }) => {
    const lines = mounts.flatMap(({ account, metrics }) =>
      samples(metrics).map(
        ({ suffix = '', labels = {}, value }) => `${name}${suffix}{${labelText({ account, ...labels })}} ${value}\n`,
      ),
    );
    return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
  }).join('');
}

/** Buckets are cumulative, with limits in seconds; empty ones at the end are left out. */
function histogram({
  operation,
  count,
  totalUs,
  latencyLog2Us,
}: MountMetrics['operations'][number]): readonly Sample[] {
  const last = latencyLog2Us.findLastIndex((inBucket) => inBucket > 0);
  let cumulative = 0;
  const buckets = latencyLog2Us.slice(0, Math.min(last, latencyLog2Us.length - 2) + 1).map((inBucket, log2) => {
    cumulative += inBucket;
    return { suffix: '_bucket', labels: { operation, le: String(2 ** log2 / 1e6) }, value: cumulative };
  });
  return [
    ...buckets,
    { suffix: '_bucket', labels: { operation, le: '+Inf' }, value: count },
    { suffix: '_sum', labels: { operation }, value: totalUs / 1e6 },
    { suffix: '_count', labels: { operation }, value: count },
  ];
}

function labelText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`)
    .join(',');
}
