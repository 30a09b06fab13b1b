import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { openUnsyncedInStore } from '../../src/cli/commands/unsynced-source.ts';
import { examineStore } from '../../src/cli/doctor/store-examination.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

/** As a node's row has it: the length of its name before it, and what follows a facet's name. */
const NAME_IN_NODE = Buffer.from('\xa6letter\xcd', 'latin1');

/** [S-damage-2] */
test('a damaged record causes errors for its file and its listing only; everything else works and can be exported', async () => {
  const service = new VersionService();
  for (const name of ['apple', 'letter', 'zebra']) service.put(name, Buffer.from(`bytes of ${name}`));
  const before = await FileSystemSide.build({ listing: service, source: service });
  const { directory } = before;
  const healthy = new InProcessMount(before.fileSystem);
  const { ino } = await healthy.stat('letter');
  await healthy.writeFile('mine', Buffer.from('only here'));
  await before.close('keep');
  const index = join(directory, 'index', 'data.mdb');
  const bytes = readFileSync(index);
  expect(bytes.indexOf(NAME_IN_NODE)).toBeGreaterThan(0);
  for (let at = bytes.indexOf(NAME_IN_NODE); at >= 0; at = bytes.indexOf(NAME_IN_NODE, at))
    bytes.write('better', at + 1);
  writeFileSync(index, bytes);

  const damaged = await FileSystemSide.build({ listing: service, source: service, directory });
  const mount = new InProcessMount(damaged.fileSystem);
  await expect(mount.readFile('letter')).rejects.toMatchObject({ errno: 'EIO' });
  await expect(mount.unlink('letter')).rejects.toMatchObject({ errno: 'EIO' });
  await expect(mount.readdir('')).rejects.toMatchObject({ errno: 'EIO' });
  expect((await mount.readFile('zebra')).toString()).toBe('bytes of zebra');
  expect((await mount.readFile('mine')).toString()).toBe('only here');
  await mount.writeFile('new', Buffer.from('made since'));
  await damaged.close('keep');

  expect(await examineStore(directory, 'structure')).toMatchObject({
    state: 'broken',
    reason: expect.stringContaining(`1 of its rows have a wrong checksum: node ${ino}`),
  });
  const source = await openUnsyncedInStore(directory, systemClock);
  const found: string[] = [];
  for await (const file of source.files()) {
    const reader = await source.open(file);
    const parts = await reader.read({ start: 0, end: file.sizeBytes });
    found.push(`${file.path}: ${Buffer.concat(parts.map((part) => part.bytes ?? Buffer.alloc(0)))}`);
    await reader.close();
  }
  await source.close();
  expect(found.sort()).toEqual(['mine: only here', 'new: made since']);

  // What `cfs doctor` says: the store is removed, and what the service has comes back.
  rmSync(directory, { recursive: true });
  const renewed = await FileSystemSide.build({ listing: service, source: service, directory });
  expect((await new InProcessMount(renewed.fileSystem).readFile('letter')).toString()).toBe('bytes of letter');
  await renewed.close();
});
