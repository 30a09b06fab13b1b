import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { checkBlobs } from '../../src/server/housekeeping.ts';
import { openParts } from '../../src/server/local-back-end.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp } from './raw-client.ts';

test('a version that is deleted during a check is no damage', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-check-'));
  const server = await ReferenceServer.open({ dataDirectory: directory });
  const { client, folder } = await signUp(server, 'a@example.com');
  const files: string[] = [];
  for (let at = 0; at < 3; at += 1)
    files.push(await client.createFilled(folder('2'), `${at}`, Buffer.alloc(20_000, at)));
  const parts = openParts({ dataDirectory: directory });
  const sizeBytes = parts.blobs.sizeBytes.bind(parts.blobs);
  // After the rows were read.
  parts.blobs.sizeBytes = async (name) => {
    const file = files.pop();
    if (file !== undefined && files.length > 0) await client.send('DELETE', file);
    return sizeBytes(name);
  };

  expect(await checkBlobs(parts)).toEqual({ damage: [], versions: 1, bytes: 20_000 });

  await parts.database.close();
  await server.close();
  rmSync(directory, { recursive: true });
});
