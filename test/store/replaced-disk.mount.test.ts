import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { IndexRoom } from '../../src/store/index-room.ts';
import { missingForMounts } from '../harness/mount-fixture.ts';
import { missingRoot, testUnless } from '../harness/requirement.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

testUnless(missingRoot() ?? missingForMounts())(
  'another file system that is mounted over the store is not asked for its space',
  () => {
    const directory = stores.directory();
    const file = join(directory, 'data.mdb');
    writeFileSync(file, '');
    const room = new IndexRoom(file, () => 0);
    try {
      expect(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', directory]).status).toBe(0);
      expect(room.freeBytes).toBeGreaterThan(64 * 1024);
    } finally {
      spawnSync('umount', ['-l', directory]);
      room.close();
    }
  },
);
