import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { CrashingDisk } from '../store/crashing-disk.ts';
import { examine, type Image, record } from '../store/recorded-life.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { TemporaryStores } from '../store/temporary-store.ts';

/** At each of these the power is cut twice, which leaves another mixture each time; later at every second event. */
const FIRST_EVENTS = 40;
const stores = new TemporaryStores();
const hasCompiler = spawnSync('cc', ['--version']).status === 0;

/** The first start on a directory. What a power cut must not take is told by writing it into `acks`. */
const CHILD = `
const [dist, directory] = process.argv.slice(1);
const { openAdministration } = await import(dist + '/server/local-back-end.js');
const fs = await import('node:fs');
const acks = fs.openSync(directory + '/acks', 'w');
const opened = await openAdministration({ dataDirectory: directory + '/data' });
for (let n = 1; n <= 4; n++) {
  await opened.administration.addUser('u' + n + '@example.com', 'pw', { scryptCost: 1024 });
  fs.writeSync(acks, 'user ' + n + '\\n');
}
await opened.close();
process.exit(0);
`;

const EXAMINER = `
const [dist, list] = process.argv.slice(1);
const { openAdministration } = await import(dist + '/server/local-back-end.js');
const fs = await import('node:fs');
for (const { image, promised } of JSON.parse(fs.readFileSync(list, 'utf8'))) {
  let problem = null;
  try {
    const opened = await openAdministration({ dataDirectory: image + '/data' });
    const users = await opened.administration.users().length;
    if (users < promised.users) problem = 'only ' + users + ' users';
    await opened.administration.addUser('again@example.com', 'pw', { scryptCost: 1024 });
    await opened.close();
  } catch (error) {
    problem = String(error.message);
  }
  fs.writeSync(1, JSON.stringify(problem) + '\\n');
}
process.exit(0);
`;

const needs = hasCompiler ? '' : ' (needs: cc)';

test.skipIf(!hasCompiler)(
  `a power cut at any moment of the first start leaves what can be started, with all that was acknowledged${needs}`,
  () => {
    const life = record(stores, CHILD);
    const disk = new CrashingDisk(life.root);
    const random = new SeededRandom(5);
    const images: Image<{ users: number }>[] = [];
    let users = 0;
    for (const [at, event] of life.events.entries()) {
      disk.apply(event);
      const said = event.type === 2 && event.payload.byteLength < 20 ? event.payload.toString() : '';
      users = Number(/^user (\d+)\n$/.exec(said)?.[1] ?? users);
      for (let n = at < FIRST_EVENTS ? 2 : at % 2; n > 0; n -= 1) {
        const image = stores.directory();
        disk.cut(image, random);
        images.push({ image, at, promised: { users } });
      }
    }

    expect(users).toBe(4);
    expect(examine(stores, EXAMINER, images, 'power cut')).toEqual([]);
  },
);
