import { formatBytes, formatDuration } from '../../config/units.ts';
import type { PinnedPath } from '../../control/status-model.ts';
import { paceOf } from './progress-line.ts';

/** `3 of 10 files, 1.2 MiB of 8 MiB, 410 KiB/s, 17 s left`; unknown parts are left out. */
export function pinText(
  { files, filesHere, bytes, bytesHere }: PinnedPath,
  samples: readonly { readonly atMs: number; readonly doneBytes: number }[] = [],
): string {
  const progress = { doneChanges: filesHere, totalChanges: files, doneBytes: bytesHere, totalBytes: bytes };
  const { bytesPerSecond, leftMs } = paceOf(samples, progress);
  const parts = [`${filesHere} of ${files} files`, `${formatBytes(bytesHere)} of ${formatBytes(bytes)}`];
  if (bytesPerSecond !== null) parts.push(`${formatBytes(Math.round(bytesPerSecond))}/s`);
  if (leftMs !== null) parts.push(`${formatDuration(Math.max(0, leftMs))} left`);
  return parts.join(', ');
}
