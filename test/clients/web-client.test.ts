import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import type { Fault } from '../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { ServerReader } from '../harness/server-reader.ts';
import { signUp, TEST_PASSWORD } from '../server/raw-client.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { Ledger } from './ledger.ts';
import { WebClient } from './web-client.ts';

/** The ledger of the clients' suite is only worth something when nobody enters what the service never took. */

const directory = mkdtempSync(join(tmpdir(), 'cfs-web-client-'));
const clock: Clock = { ...systemClock, sleep: async () => {} };
let server: ReferenceServer;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory, clock });
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** What their uploads meet: nothing, or what is no success although it may look like one. */
const FAULTS: Readonly<Record<string, Fault>> = {
  none: {},
  page: { garbage: true },
  part: { acceptBytes: 500 },
  silence: { actButNeverAnswer: true },
};

async function readerOf(email: string): Promise<ServerReader> {
  const { application, accessKeyId, privateAccessKey } = await signUp(server, email);
  const keys = { application, accessKeyId, privateAccessKey };
  return new ServerReader({ url: server.origin, username: email, password: TEST_PASSWORD, ...keys });
}

test.each(Object.entries(FAULTS))('what the web client takes for accepted is there: %s', async (name, fault) => {
  const reader = await readerOf(`${name}@example.com`);
  const ledger = new Ledger();
  const work = (run: number) =>
    new WebClient({ clock, name: `web${run}`, reader, random: new SeededRandom(run), ledger, trace: [] }).run(8);
  await work(1);
  const before = ledger.accepted;

  server.faults = [{ on: 'PUT', times: 5, then: fault }];
  await work(2);
  server.faults = [];

  expect(before).toBeGreaterThan(0);
  expect(ledger.accepted).toBeGreaterThan(before);
  expect(ledger.missing(await reader.everyVersion())).toEqual([]);
});

test('files that the web client made without hearing of it are counted', async () => {
  const reader = await readerOf('unheard@example.com');
  await reader.places();
  const ledger = new Ledger();
  const web = new WebClient({ clock, name: 'web', reader, random: new SeededRandom(3), ledger, trace: [] });

  server.faults = [{ on: 'POST', times: 'always', then: { actButNeverAnswer: true } }];
  await web.run(20);
  server.faults = [];

  const unfilled = (await reader.list()).filter(({ sizeBytes }) => sizeBytes < 0);
  expect(unfilled.length).toBeGreaterThan(0);
  expect(web.unheard).toBe(unfilled.length);
});
