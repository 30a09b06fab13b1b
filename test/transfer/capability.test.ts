import { setMaxListeners } from 'node:events';
import { expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { createTransfer, type Transfer } from '../../src/transfer/transfer.ts';
import { HastyClock } from '../remote/client.ts';
import { MemoryService } from '../remote/memory-service.ts';

/** What the file-system side is told of a capability that the service does not have. */

const { signal } = new AbortController();
setMaxListeners(0, signal);

function transferOf(service: MemoryService): Transfer {
  return createTransfer({ service, clock: new HastyClock(), log: silentLogger });
}

async function fileOf(service: MemoryService): Promise<ResourceUrl> {
  return await service.createFile((await service.user()).home, 'file', 'text/plain');
}

test('a file has no public link where the service has no links, and cannot get one', async () => {
  const service = new MemoryService();
  const { links } = transferOf(service);
  const file = await fileOf(service);

  expect(await links.publicLink(file, signal)).toBeNull();
  await expect(links.setPublicLink(file, 'on', signal)).rejects.toMatchObject({ name: 'ApiError', status: 405 });
});

test('a missing trash, a missing copy and missing uploads are refusals, which count as responses of the service', async () => {
  const service = new MemoryService(['trash', 'copies', 'uploads']);
  const { changes, uploads, connectivity } = transferOf(service);
  const file = await fileOf(service);
  const { home } = await service.user();

  const refused = { name: 'ApiError', status: 405, mayHaveActed: false };
  await expect(changes.moveToTrash(file, 'file', 'file', signal)).rejects.toMatchObject(refused);
  await expect(changes.copyFile(file, home, 'copy', signal)).rejects.toMatchObject(refused);
  await expect(uploads.createVersion(file, signal)).rejects.toMatchObject(refused);
  await expect(uploads.putFileData(file, [], 'text/plain', signal)).rejects.toMatchObject(refused);
  expect(await service.resource(file)).toMatchObject({ name: 'file' });
  expect(connectivity.state.online).toBe(true);
});
