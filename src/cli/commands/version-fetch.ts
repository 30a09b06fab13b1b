import { open, rm } from 'node:fs/promises';
import { writeAll } from '../../base/write-all.ts';
import { formatBytes } from '../../config/units.ts';
import type { NamedVersion } from '../../fs/file-history.ts';
import { withPath } from '../../mount/failure.ts';
import { visible } from '../../mount/mount-event.ts';
import type { RemoteReading } from '../../remote/contract.ts';
import type { CommandOutput } from '../command-output.ts';
import type { ServiceWait } from '../service-wait.ts';

/**
 * Writes a version's bytes into a new file of mode 0600, completely or not at all.
 *
 * @throws errors of the service or the disk; then no file is left
 */
export async function fetchVersion(
  deps: { readonly service: RemoteReading; readonly output: CommandOutput; readonly wait: ServiceWait },
  { version, name }: NamedVersion,
  path: string,
): Promise<void> {
  const { url, sizeBytes } = version;
  const file = await open(path, 'wx', 0o600);
  try {
    const { chunks } = await deps.service.readVersion(url, { start: 0, end: sizeBytes }, sizeBytes);
    let doneBytes = 0;
    for await (const chunk of chunks) {
      await writeAll(file, chunk).catch((error: unknown) => Promise.reject(withPath(error, path)));
      deps.wait.moved();
      doneBytes += chunk.byteLength;
      deps.output.redraw?.(`fetching ${visible(name)}: ${formatBytes(doneBytes)} of ${formatBytes(sizeBytes)}`);
    }
    await file.close();
  } catch (error) {
    await file.close().catch(() => {});
    await rm(path, { force: true });
    throw error;
  } finally {
    deps.output.redraw?.('');
  }
}
