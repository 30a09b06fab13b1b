import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { TransferQueue } from '../../src/transfer/transfer-queue.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { until } from '../server/until.ts';
import { VersionService } from './version-service.ts';

const MIB = 1024 * 1024;

/** A service behind the queue of transfers, as `transfer/version-service` puts it there; a fetch takes some turns. */
async function place() {
  const service = new VersionService();
  const queue = new TransferQueue({ clock: systemClock });
  const readVersion = service.readVersion.bind(service);
  const begun: string[] = [];
  service.readVersion = (version, extent, sizeBytes, target, written, signal) => {
    const { isAhead = false } = target;
    const transfer = { kind: 'download', url: version, bytesTotal: extent.end - extent.start, isAhead } as const;
    return queue.run(transfer, signal, async () => {
      begun.push(/note/.test(version) ? 'note' : `${extent.start}`);
      for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
      return await readVersion(version, extent, sizeBytes, target, written, signal);
    });
  };
  service.put('image', Buffer.alloc(96 * MIB, 1));
  service.put('note', Buffer.alloc(10_000, 2));
  const side = await FileSystemSide.build({ listing: service, source: service });
  return { queue, begun, side, mount: new InProcessMount(side.fileSystem) };
}

test('a read of another file does not wait for the completion of a partly changed long file', async () => {
  const { begun, side, mount } = await place();
  await mount.stat('note');
  const fd = await mount.open('image', 'r+');
  await mount.write(fd, 40 * MIB, Buffer.from('changed'));
  await until(() => begun.length > 0);
  const before = begun.length;

  await mount.readFile('note');

  expect(begun.indexOf('note') - before).toBeLessThan(24);
  await mount.close(fd);
  await side.close();
});

test('a read of the end of a partly changed long file does not wait for its completion', async () => {
  const { begun, side, mount } = await place();
  const fd = await mount.open('image', 'r+');
  await mount.write(fd, 40 * MIB, Buffer.from('changed'));
  await until(() => begun.length > 0);
  const before = begun.length;

  await mount.read(fd, 96 * MIB - 10, 10);

  expect(begun.length - before).toBeLessThan(48);
  await mount.close(fd);
  await side.close();
});

test('an upload does not wait for the completion of a partly changed long file', async () => {
  const { queue, begun, side, mount } = await place();
  const fd = await mount.open('image', 'r+');
  await mount.write(fd, 40 * MIB, Buffer.from('changed'));
  await until(() => begun.length > 0);
  const before = begun.length;

  let at = 0;
  const upload = { kind: 'upload', url: 'u', bytesTotal: 1000 } as const;
  await queue.run(upload, new AbortController().signal, async () => {
    at = begun.length;
  });

  expect(at - before).toBeLessThan(48);
  await mount.close(fd);
  await side.close();
});
