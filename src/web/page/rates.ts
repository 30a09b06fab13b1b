import type { Sample } from '../throughput.ts';

/** Bytes per second between two samples each, sent and fetched. A mount that began anew counts from zero. */
export function ratesOf(samples: readonly Sample[], sinceMs: number): [number[], number[], number[]] {
  const times: number[] = [];
  const up: number[] = [];
  const down: number[] = [];
  for (const [index, { atMs, pushed, fetched }] of samples.entries()) {
    const before = samples[index - 1];
    if (before === undefined || atMs < sinceMs || atMs <= before.atMs) continue;
    const seconds = (atMs - before.atMs) / 1000;
    const since = (now: number, then: number): number => (now >= then ? now - then : now) / seconds;
    times.push(atMs / 1000);
    up.push(since(pushed, before.pushed));
    down.push(since(fetched, before.fetched));
  }
  return [times, up, down];
}
