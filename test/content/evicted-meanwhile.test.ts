import { closeSync, openSync, writeSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ApiError } from '../../src/base/errors.ts';
import { BLOCK_BYTES } from '../../src/base/vocabulary.ts';
import { ArrivingChecksums } from '../../src/transfer/arriving-checksums.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { VersionService } from './version-service.ts';

/** A file of sevens, opened where the cache keeps nothing that nobody uses. */
async function opened(blocks: number) {
  const service = new VersionService();
  const clock = new ManualClock();
  const bytes = Buffer.alloc(blocks * BLOCK_BYTES, 7);
  service.put('file', bytes);
  const side = await FileSystemSide.build({
    listing: service,
    source: service,
    clock,
    readTimeoutMs: 600_000,
    contents: { cacheBytes: 0 },
  });
  const mount = new InProcessMount(side.fileSystem);
  const fd = await mount.open('file', 'r');
  return { service, clock, bytes, side, mount, fd };
}

test('a block that was here before its file is fetched whole, and is given up between its being written and our hearing of it, is no hole', async () => {
  const { service, clock, bytes, side, mount, fd } = await opened(4);
  // A fetch that breaks off leaves the first block.
  Object.assign(service, {
    bytesBeforeHalt: BLOCK_BYTES,
    haltedAt: () => Promise.reject(new ApiError(403, 'GET', 'no')),
  });
  await mount.read(fd, 3 * BLOCK_BYTES, 10).catch(() => {});
  expect((await mount.read(fd, 0, 10))[0]).toBe(7);
  // The next one waited for its turn, and is told of a moment after it was written.
  service.readVersion = async (_version, extent, _size, target, written) => {
    const arriving = new ArrivingChecksums(0);
    arriving.add(bytes);
    arriving.end();
    clock.advance(31_000);
    const file = openSync((target as { path: string }).path, 'r+');
    writeSync(file, bytes, 0, bytes.byteLength, 0);
    closeSync(file);
    side.contents.collect();
    written({ ...extent, checksums: arriving.take() });
    return { extent, bytes: null };
  };

  expect((await mount.read(fd, 3 * BLOCK_BYTES, 10))[0]).toBe(7);
  expect((await mount.read(fd, 0, 10))[0]).toBe(7);
  await mount.close(fd);
  await side.close();
});

test('a block of another fetch is not evicted during a read from a service that always sends the whole file', async () => {
  const { service, clock, side, mount, fd } = await opened(40);
  service.ignoresRange = true;
  // The first one is told of a moment after it was written, and half a minute after another one brought the same.
  const readVersion = service.readVersion.bind(service);
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  service.readVersion = async (version, extent, sizeBytes, target, written, signal) => {
    service.readVersion = readVersion;
    await released;
    const told: (() => void)[] = [];
    const fetched = await readVersion(
      version,
      extent,
      sizeBytes,
      target,
      (there) => told.push(() => written(there)),
      signal,
    );
    side.contents.collect();
    for (const tell of told) tell();
    return fetched;
  };
  const first = mount.read(fd, 0, 10);
  expect((await mount.read(fd, 39 * BLOCK_BYTES, 10))[0]).toBe(7);
  clock.advance(31_000);
  release();

  expect((await first)[0]).toBe(7);
  expect((await mount.read(fd, 0, 10))[0]).toBe(7);
  await mount.close(fd);
  await side.close();
});
