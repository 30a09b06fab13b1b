import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import type { Fault } from '../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { FAST_DISK } from '../harness/fast-disk.ts';
import { signUp, type TestUser } from '../server/raw-client.ts';
import { eventually, inMount, onService } from './fault-matrix.ts';
import { FaultySide, LONG_WAITS } from './faulty-side.ts';

/** [S-network-1] A proxy, a gateway or a hotel answers every request in the service's place, and then stops. */
const directory = mkdtempSync(join(FAST_DISK, 'cfs-refused-'));
let server: ReferenceServer;
let user: TestUser;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'somebody@example.com');
});
afterAll(async () => {
  server.faults = [];
  await server.close({ graceMs: 0 });
  rmSync(directory, { recursive: true });
});

const ANSWERS: readonly (readonly [string, Fault])[] = [
  ...[400, 401, 403, 404, 407, 409, 413, 451, 511].map((status) => [String(status), { status }] as const),
  ['a page of HTML', { garbage: true }],
];

test.each(ANSWERS)(
  'after %s to every request, everything recovers without user action',
  { timeout: 60_000 },
  async (_, fault) => {
    const folder = await user.client.createFolder(user.folder('2'), `refused ${JSON.stringify(fault)}`);
    for (const name of ['renamed', 'saved', 'deleted']) await user.client.createFilled(folder, name, Buffer.from(name));
    const side = await FaultySide.build({
      ...{ origin: server.origin, user, root: folder as ResourceUrl, shows: 'folder', waits: LONG_WAITS },
    });
    const { mount, sync } = side;
    try {
      await eventually(() => mount.readFile('saved'));
      server.faults = [{ on: '*', times: 'always', then: fault }];
      await mount.writeFile('saved', Buffer.from('saved again'));
      await mount.rename('renamed', 'renamed here');
      await mount.unlink('deleted');
      await mount.mkdir('made');
      await mount.writeFile('made/file', Buffer.from('made'));
      await eventually(async () => expect(side.side.health.failure).not.toBeNull());
      // One more attempt finds the same.
      const asked = side.service.requestCounts.sent;
      await eventually(async () => expect(side.service.requestCounts.sent).toBeGreaterThan(asked));
      expect(sync.status()).toMatchObject({ parked: [], pending: 5 });

      server.faults = [];
      await eventually(async () => expect(sync.status()).toMatchObject({ pending: 0, parked: [] }));
      await eventually(async () => expect(await onService(user.client, folder)).toEqual(await inMount(side)));
      expect(await onService(user.client, folder)).toEqual([
        'made/',
        'made/file: made',
        'renamed here: renamed',
        'saved: saved again',
      ]);
    } finally {
      server.faults = [];
      await side.close();
    }
  },
);
