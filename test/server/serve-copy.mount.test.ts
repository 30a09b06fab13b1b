import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Postgres } from '../../src/server/postgres/postgres.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { titled } from '../harness/requirement.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { fillInstallation, pattern } from './filled-installation.ts';
import { miscounts } from './postgres/miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres/postgres-server.ts';

/** `cfs serve copy` from outside, as the built program. */

const PROGRAM = fileURLToPath(new URL('../../dist/cli/cfs.js', import.meta.url));
const KILLS = Number(process.env.CFS_COPY_KILLS ?? 4);
const SEED = Number(process.env.CFS_CASES_SEED);
const LONG_FILES = 150;
const missing = missingPostgres();

describe.skipIf(missing !== null)(titled('cfs serve copy', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-serve-copy-'));
  const [from, back, objects] = [join(directory, 'from'), join(directory, 'back'), join(directory, 'objects')];
  const random = new SeededRandom(SEED);
  let postgres: PostgresServer;
  let url: string;

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    url = await postgres.newDatabase();
    const server = await ReferenceServer.open({ dataDirectory: from });
    const { users } = await fillInstallation(server, 100_000);
    for (const { client, folder } of users.slice(0, 1))
      for (let at = 0; at < LONG_FILES; at += 1) await client.createFilled(folder('2'), `${at}`, pattern(50_000 + at));
    await server.close();
  }, 60_000);

  afterAll(async () => {
    await postgres.close();
    rmSync(directory, { recursive: true });
  });

  // A killed copy leaves its temporary directory.
  const env = { PATH: process.env.PATH, HOME: directory, TMPDIR: directory };
  const copy = (args: readonly string[]): Promise<Outcome> => serve(['copy', ...args]);
  const serve = (args: readonly string[]): Promise<Outcome> =>
    new Promise((resolve) => {
      const child = execFile(process.execPath, [PROGRAM, 'serve', ...args], { timeout: 120_000, env }, (_, out, err) =>
        resolve({ code: child.exitCode ?? -1, out, err }),
      );
    });

  /** Kills copies when they have stored some more long versions, then lets one end. @returns kills */
  async function copyWithKills(args: readonly string[], stored: () => number): Promise<number> {
    let kills = 0;
    for (let tries = 0; tries < KILLS; tries += 1) {
      const child = spawn(process.execPath, [PROGRAM, 'serve', 'copy', ...args], { stdio: 'ignore', env });
      const ended = new Promise((resolve) => child.once('exit', resolve));
      const until = stored() + random.below(Math.ceil(LONG_FILES / KILLS));
      while (stored() <= until && child.exitCode === null) await sleep(1);
      if (child.exitCode === null) kills += 1;
      child.kill('SIGKILL');
      await ended;
    }
    const { code, out, err } = await copy(args);
    expect(err).toBe('');
    expect(code).toBe(0);
    expect(out).toContain('compare both with --check');
    return kills;
  }

  test(`a copy in either direction that is killed (seed ${SEED}) continues, and --check finds no difference`, async () => {
    const there = ['--from', from, '--to', url, '--to-objects', `file://${objects}`];
    const here = ['--from', url, '--from-objects', `file://${objects}`, '--to', back];

    expect(await copyWithKills(there, () => filesBelow(objects))).toBeGreaterThan(0);
    expect(await copy([...there, '--check'])).toMatchObject({ code: 0, err: '' });
    expect(await miscounts(url)).toEqual([]);

    expect(await copyWithKills(here, () => filesBelow(join(back, 'blobs')))).toBeGreaterThan(0);
    expect(await copy([...here, '--check'])).toMatchObject({ code: 0, err: '' });
    const { code, out } = await copy(['--from', from, '--to', back, '--check']);
    expect(out).toMatch(/^compared \d{3} entries, \d{3} versions, \d+ bytes: 0 differences\n$/);
    expect(code).toBe(0);
  }, 300_000);

  test('--check names what differs, and ends with the code of a damaged store', async () => {
    const there = ['--from', from, '--to', url, '--to-objects', `file://${objects}`];
    const database = await Postgres.open(url, { connectionsMax: 1 });
    await database.rows("UPDATE resources SET name = 'another' WHERE name = '7'");
    await database.close();
    expect((await copy(there)).err).toContain('has data already');

    const { code, out } = await copy([...there, '--check']);

    expect(out).toMatch(/resources 1001 \d+_\d+: the rows differ\ncompared .*: 1 differences\n$/);
    expect(code).toBe(11);
  }, 60_000);

  test('cfs serve --check reads every object of a database', async () => {
    const args = ['--check', '--database', url, '--objects', `file://${objects}`];
    const sound = await serve(args);
    expect(sound.out).toMatch(/^checked \d{3} versions, \d+ bytes: 0 damaged\n$/);
    expect(sound.code).toBe(0);
    const database = await Postgres.open(url, { connectionsMax: 1 });
    // A copy that was killed leaves objects that no version names.
    const { key } = await database.one<{ key: string }>('SELECT key FROM parts LIMIT 1');
    await database.close();
    const bytes = readFileSync(join(objects, key));
    bytes[100] = ~(bytes[100] as number);
    writeFileSync(join(objects, key), bytes);

    const { code, out } = await serve(args);

    expect(out).toMatch(/: its data are not those that were sent\nchecked .*: 1 damaged\n$/);
    expect(code).toBe(11);
  }, 60_000);

  test('wrong arguments are refused with the flag to give', async () => {
    writeFileSync(join(directory, 'file'), '');
    const refusals: readonly (readonly [expected: string, args: readonly string[]])[] = [
      ['give --from and --to', ['--from', from]],
      ['give --to-objects', ['--from', from, '--to', url]],
      ['give the password in PGPASSWORD', ['--from', from, '--to', 'postgres://cfs:secret@127.0.0.1/cfs']],
      ['Start it with --objects after the copy', ['--from', from, '--to', back, '--to-objects', 's3://bucket']],
      ['has no data of cfs serve', ['--from', join(directory, 'none'), '--to', join(directory, 'new')]],
    ];
    for (const [expected, args] of refusals) {
      const { code, err } = await copy(args);
      expect(err).toContain(expected);
      expect(err).not.toContain('secret');
      expect(code).toBe(2);
    }
  }, 60_000);
});

interface Outcome {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

function filesBelow(directory: string): number {
  if (!existsSync(directory)) return 0;
  return readdirSync(directory, { recursive: true }).length;
}
