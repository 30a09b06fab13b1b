import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp } from './raw-client.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-backup-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

test('a server that was set back to a backup gives no address a second time', async () => {
  const data = join(directory, 'data');
  const first = await ReferenceServer.open({ dataDirectory: data });
  const user = await signUp(first, 'a@example.com');
  const kept = await user.client.createFilled(user.folder('2'), 'kept', Buffer.from('kept'));
  await first.close();
  cpSync(data, join(directory, 'backup'), { recursive: true });

  const make = async (round: string): Promise<readonly string[]> => {
    const server = await ReferenceServer.open({ dataDirectory: data });
    const made = [
      await user.client.createFolder(user.folder('2'), `folder ${round}`),
      await user.client.createFilled(user.folder('2'), `file ${round}`, Buffer.from(round)),
      await user.client.create(`${kept}/version`, ''),
    ];
    await server.close();
    return made.map((url) => new URL(url).pathname);
  };
  const lost = await make('one');
  rmSync(data, { recursive: true });
  cpSync(join(directory, 'backup'), data, { recursive: true });
  const made = await make('two');

  expect(made.filter((path) => lost.includes(path))).toEqual([]);
});
